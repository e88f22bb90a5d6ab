// SPDX-License-Identifier: GPL-2.0-or-later
// The software GPU's configuration.
#include "driver/config.hpp"

#include "cmocka.hpp"

#include <map>

using namespace singularity::softgpu::driver;
using singularity::test::expect_contains;

namespace {

auto from(std::map<std::string, std::string> values) {
    return read_config([values = std::move(values)](const char *name) -> const char * {
        const auto found = values.find(name);
        return found == values.end() ? nullptr : found->second.c_str();
    });
}

void values(void ** /*state*/) {
    const auto config = from({{"SINGULARITY_SOFTGPU_DEVICES", "4"},
                              {"SINGULARITY_SOFTGPU_MEMORY", "3G"},
                              {"SINGULARITY_SOFTGPU_NAME", "true"},
                              {"SINGULARITY_SOFTGPU_COMPILER", "both"},
                              {"SINGULARITY_SOFTGPU_ADDRESSES", "system"},
                              {"SINGULARITY_SOFTGPU_COMPUTE_CAPABILITY", "9.0"}});
    assert_true(config.has_value());
    assert_int_equal(config->devices, 4);
    assert_int_equal(config->memory, std::uint64_t{3} << 30U);
    assert_string_equal(config->name.c_str(), "true");
    assert_int_equal(config->compute_capability.sm(), 90);
    assert_true(config->compiler == singularity::softgpu::CompilerMode::both);
    assert_true(from({})->fault_file.empty());
    assert_string_equal(from({{"SINGULARITY_SOFTGPU_FAULT_FILE", "/tmp/f"}})->fault_file.c_str(), "/tmp/f");
    assert_true(config->addresses == Addresses::system && from({})->addresses == Addresses::own);
    assert_true(from({})->compiler == singularity::softgpu::CompilerMode::interpreter);
    assert_int_equal(from({})->compute_capability.sm(), 130);
}

void bad_values_are_named(void ** /*state*/) {
    for (const auto &[name, value] :
         std::map<std::string, std::string>{{"SINGULARITY_SOFTGPU_DEVICES", "0"},
                                            {"SINGULARITY_SOFTGPU_MEMORY", "12Q"},
                                            {"SINGULARITY_SOFTGPU_MEMORY", "1"},
                                            {"SINGULARITY_SOFTGPU_COMPUTE_CAPABILITY", "9"},
                                            {"SINGULARITY_SOFTGPU_COMPILER", "fast"},
                                            {"SINGULARITY_SOFTGPU_ADDRESSES", "0x1000"},
                                            {"SINGULARITY_SOFTGPU_THREADS", "-1"}}) {
        const auto config = from({{name, value}});
        assert_false(config.has_value());
        expect_contains(config.error().message(), name);
    }
    assert_false(from({{"SINGULARITY_SOFTGPU_CONFIG", "/nowhere"}}).has_value());
}

void visible(void ** /*state*/) {
    const std::vector<std::string> uuids{"GPU-aa", "GPU-ab", "GPU-b0"};
    const auto see = [&](const char *list) { return visible_devices(list, uuids); };
    using Ordinals = std::vector<unsigned>;
    assert_true(see(nullptr) == (Ordinals{0, 1, 2}));
    assert_true(see("2,0") == (Ordinals{2, 0}));
    assert_true(see("1,7,0") == (Ordinals{1}));
    assert_true(see("GPU-b,0") == (Ordinals{2, 0}));
    assert_true(see("GPU-a").empty()); // two have it
    assert_true(see("1,1").empty());
    assert_true(see("").empty());
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(values),
        cmocka_unit_test(bad_values_are_named),
        cmocka_unit_test(visible),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
