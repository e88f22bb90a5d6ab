# SPDX-License-Identifier: GPL-2.0-or-later
"""Makes one program of several tests, so that their headers are compiled once: together.py OUTPUT SOURCE...

A test's source is as it would be alone, with a main() of its own. Here it is in a namespace of its own name, in which its
main() is a function like any other; what it includes comes before all namespaces. The program runs the test it is told.
"""

import os
import re
import sys

INCLUDE = re.compile(r'^#include [<"].*[>"]', re.MULTILINE)
MAIN = """
int main(int argc, char **argv) {
    const struct {
        std::string_view name;
        int (*run)();
    } tests[] = {
%s    };
    for (const auto &test : tests)
        if (argc == 2 && test.name == argv[1])
            return test.run();
    std::fputs("give one test:%s\\n", stderr);
    return 2;
}
"""


def together(sources):
    includes, parts = {"#include <cstdio>": None, "#include <string_view>": None}, []
    names = [os.path.splitext(os.path.basename(source))[0] for source in sources]
    for name, source in zip(names, sources):
        with open(source, encoding="utf-8") as file:
            includes.update(dict.fromkeys(INCLUDE.findall(file.read())))
        parts.append(f'namespace test_{name} {{\n#include "{source}"\n}}\n')
    runs = "".join(f'        {{"{name}", test_{name}::main}},\n' for name in names)
    return "\n".join(includes) + "\n\n" + "".join(parts) + MAIN % (runs, "".join(f" {name}" for name in names))


def main():
    output, *sources = sys.argv[1:]
    os.makedirs(os.path.dirname(output), exist_ok=True)
    with open(output, "w", encoding="utf-8") as file:
        file.write(together(sources))


main()
