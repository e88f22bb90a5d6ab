// SPDX-License-Identifier: GPL-2.0-or-later
// A loaded module, and its kernels as they are compiled.
#pragma once

#include "engine/code.hpp"
#include "engine/compile.hpp"
#include "engine/engine.hpp"

#include <memory>
#include <mutex>
#include <vector>

namespace singularity::softgpu::engine {

class LoadedProgram : public Program {
  public:
    LoadedProgram(std::shared_ptr<const ptx::Module> module, std::vector<std::uint64_t> addresses);

    [[nodiscard]] std::vector<std::byte> initial_content(std::uint32_t index) const override;
    [[nodiscard]] const ptx::Module &module() const override { return *module_; }
    [[nodiscard]] const std::vector<std::uint32_t> &kernels() const override { return kernels_; }
    [[nodiscard]] KernelInfo info(std::uint32_t index) override;
    [[nodiscard]] bool blocks_independent(std::uint32_t function) override {
        return kernel(function).independent;
    }

    // Compiled when it is first asked for; lives as long as the program.
    [[nodiscard]] const Kernel &kernel(std::uint32_t function);

  private:
    [[nodiscard]] std::vector<std::uint32_t> reachable(std::uint32_t kernel) const;
    [[nodiscard]] Layout lay_out(const std::vector<std::uint32_t> &functions, std::uint64_t &end) const;
    [[nodiscard]] std::unique_ptr<Kernel> compile(std::uint32_t index) const;

    std::shared_ptr<const ptx::Module> module_;
    std::vector<std::uint64_t> addresses_;
    std::vector<std::uint32_t> addressed_;
    std::vector<std::uint32_t> kernels_;
    std::mutex lock_;
    std::vector<std::unique_ptr<Kernel>> compiled_; // by function
};

} // namespace singularity::softgpu::engine
