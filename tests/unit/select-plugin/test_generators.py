# SPDX-License-Identifier: GPL-2.0-or-later
"""The generators of select-plugin/: which table is chosen, what is refused, which operations a release has."""
import copy
import importlib.util
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SELECT_PLUGIN = Path(__file__).resolve().parents[3] / "select-plugin"


def load(folder):
    spec = importlib.util.spec_from_file_location(f"{folder}_generate", SELECT_PLUGIN / folder / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


records = load("records")
operations = load("operations")
FIELDS = json.loads((SELECT_PLUGIN / "records" / "fields.json").read_text(encoding="utf-8"))
TABLES = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in (SELECT_PLUGIN / "slurm-abi").glob("*.json")}


class ChoiceOfTable(unittest.TestCase):
    def choose(self, release, tables=None):
        return records.choose_table(release, list((tables or TABLES).values()), FIELDS)

    def test_exact_release(self):
        for release in TABLES:
            self.assertEqual(self.choose(release)[0]["release"], release)

    def test_between_two_that_are_alike(self):
        table, reason = self.choose("24.11.6")
        self.assertEqual(table["release"], "24.11.5")
        self.assertIn("24.11.7", reason)

    def test_between_two_that_differ(self):
        table, reason = self.choose("24.11.3")
        self.assertIsNone(table)
        self.assertIn("differ", reason)

    def test_one_change_in_a_listed_struct_is_a_difference(self):
        tables = copy.deepcopy(TABLES)
        tables["24.11.7"]["structs"]["node_record"]["fields"]["reason"][0] += 8
        self.assertIsNone(self.choose("24.11.6", tables)[0])

    def test_a_change_elsewhere_is_none(self):
        tables = copy.deepcopy(TABLES)
        tables["24.11.7"]["structs"]["step_record"]["size"] += 8
        self.assertEqual(self.choose("24.11.6", tables)[0]["release"], "24.11.5")

    def test_nothing_is_inferred_beyond_the_tables(self):
        for release in ("26.05.5", "22.05.7", "24.11.8", "25.05.9", "27.11.0"):
            with self.subTest(release):
                self.assertIsNone(self.choose(release)[0])

    def test_not_a_release(self):
        with self.assertRaises(records.Refused):
            self.choose("trunk")


class RecordsHeader(unittest.TestCase):
    def emit(self, table):
        return records.emit(table["release"], table, "a test", FIELDS)

    def test_every_table_has_every_field(self):
        for release, table in TABLES.items():
            with self.subTest(release):
                self.assertIn("kHasTable = true", self.emit(table))

    def test_offsets_are_those_of_the_table(self):
        text = self.emit(TABLES["24.11.5"])
        self.assertIn('kJob_job_id{&kJobLayout, "job_id", 392}', text)
        self.assertIn(".size = 1160", text)

    def test_no_table_gives_no_offsets(self):
        text = records.emit("26.05.5", None, "none", FIELDS)
        self.assertIn("kHasTable = false", text)
        self.assertIn('kJob_job_id{&kJobLayout, "job_id", kNowhere}', text)

    def refusal(self, change):
        table = copy.deepcopy(TABLES["24.11.5"])
        change(table["structs"])
        with self.assertRaises(records.Refused) as caught:
            self.emit(table)
        return str(caught.exception)

    def test_missing_field(self):
        text = self.refusal(lambda structs: structs["job_record"]["fields"].pop("priority"))
        self.assertIn("job_record.priority", text)
        self.assertIn("24.11.5", text)
        self.assertIn("aliases", text)

    def test_missing_struct(self):
        self.assertIn("part_record", self.refusal(lambda structs: structs.pop("part_record")))

    def test_missing_magic_number(self):
        self.assertIn("node_record.magic", self.refusal(lambda structs: structs["node_record"]["fields"].pop("magic")))

    def test_other_size(self):
        text = self.refusal(lambda structs: structs["job_record"]["fields"]["priority"].__setitem__(1, 8))
        self.assertIn("job_record.priority", text)

    def test_other_type(self):
        text = self.refusal(lambda structs: structs["job_record"]["fields"]["priority"].__setitem__(2, "int32_t"))
        self.assertIn("int32_t", text)
        self.assertIn("uint32_t", text)

    def test_field_outside_its_struct(self):
        text = self.refusal(lambda structs: structs["job_record"]["fields"]["priority"].__setitem__(0, 1158))
        self.assertIn("outside", text)

    def test_renamed_field_is_found_by_its_alias(self):
        fields = copy.deepcopy(FIELDS)
        job = next(struct for struct in fields["structs"] if struct["struct"] == "job_record")
        next(field for field in job["fields"] if field["name"] == "priority")["aliases"] = ["prio"]
        table = copy.deepcopy(TABLES["24.11.5"])
        there = table["structs"]["job_record"]["fields"]
        there["prio"] = there.pop("priority")
        text = records.emit("24.11.5", table, "a test", fields)
        self.assertIn(f'"priority", {there["prio"][0]}}}', text)

    def test_field_that_nothing_checks_needs_a_reason(self):
        fields = copy.deepcopy(FIELDS)
        fields["structs"][-1]["fields"].append({"name": "weight", "type": "u32"})
        with self.assertRaises(records.Refused):
            records.check_list(fields)

    def test_command_fails_with_one_line(self):
        table = copy.deepcopy(TABLES["24.11.5"])
        del table["structs"]["job_record"]["fields"]["nodes"]
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "table.json"
            path.write_text(json.dumps(table), encoding="utf-8")
            output = Path(directory) / "out.hpp"
            result = subprocess.run(
                [sys.executable, str(SELECT_PLUGIN / "records" / "generate.py"), "--fields",
                 str(SELECT_PLUGIN / "records" / "fields.json"), "--release", "24.11.5", "--table", str(path),
                 "--output", str(output)], capture_output=True, text=True, check=False)
            self.assertEqual(result.returncode, 1)
            self.assertIn("job_record.nodes", result.stderr)
            self.assertEqual(result.stderr.count("\n"), 1)
            self.assertFalse(output.exists())


class Operations(unittest.TestCase):
    # Without plugin_id, which is data. Counted in slurm's tables of symbols.
    SELECT = {"22.05.8": 36, "23.02.8": 32, "23.11.11": 31, "24.05.8": 31, "24.11.5": 31, "25.05.8": 12, "25.11.7": 12,
              "26.05.3": 13}
    PRIORITY = {"22.05.8": 6, "23.02.8": 7, "23.11.11": 8, "24.05.8": 8, "24.11.5": 8, "25.05.8": 8, "25.11.7": 7,
                "26.05.3": 7}

    def table(self, name):
        return json.loads((SELECT_PLUGIN / "operations" / f"{name}.json").read_text(encoding="utf-8"))

    def test_every_release_has_its_number_of_operations(self):
        for name, counts in (("select", self.SELECT), ("priority", self.PRIORITY)):
            for release, count in counts.items():
                with self.subTest(f"{name} {release}"):
                    self.assertEqual(len(operations.operations_of(release, self.table(name))), count)

    def parameters(self, release, name, operation):
        return [len(entry["parameters"]) for entry in operations.operations_of(release, self.table(name))
                if entry["name"] == operation]

    def test_signatures_that_changed(self):
        self.assertEqual(self.parameters("24.05.8", "select", "select_p_job_test"), [9])
        self.assertEqual(self.parameters("24.11.0", "select", "select_p_job_test"), [10])
        self.assertEqual(self.parameters("23.11.11", "priority", "priority_p_get_priority_factors_list"), [2])
        self.assertEqual(self.parameters("24.05.0", "priority", "priority_p_get_priority_factors_list"), [1])

    def test_an_operation_twice_is_refused(self):
        table = self.table("select")
        table["operations"].append({"name": "select_p_job_ready", "returns": "int", "parameters": []})
        with self.assertRaises(operations.Refused):
            operations.operations_of("24.11.5", table)

    def test_exports_are_the_operations_and_the_loaders(self):
        text = operations.emit_map(operations.operations_of("25.05.8", self.table("select")), ["plugin_id"])
        shown = {line.strip(" ;") for line in text.splitlines() if line.startswith("        ")} - {"*"}
        self.assertEqual(len(shown), 12 + 5 + 1)
        self.assertIn("plugin_version", shown)
        self.assertNotIn("select_p_state_save", shown)


if __name__ == "__main__":
    unittest.main()
