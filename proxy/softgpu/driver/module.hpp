// SPDX-License-Identifier: GPL-2.0-or-later
// Modules and libraries: code in a context, and code that goes to whichever context uses it.
#pragma once

#include "driver/context.hpp"
#include "driver/handles.hpp"
#include "driver/image.hpp"
#include "engine/engine.hpp"

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace singularity::softgpu::driver {

class Module;

// What may be set for a function, for launches and to be asked for again.
struct FunctionSettings {
    std::atomic<int> max_dynamic_shared{-1}; // -1: what is left of 48 KiB
    std::atomic<int> carveout{CU_SHAREDMEM_CARVEOUT_DEFAULT};
    std::atomic<int> non_portable_cluster{0};
    std::atomic<int> cluster_policy{0};
    std::array<std::atomic<int>, 3> cluster{};
};

class Function {
  public:
    Function(std::shared_ptr<Context> context, std::shared_ptr<Program> program, std::uint32_t index,
             CUmodule module);
    [[nodiscard]] bool belongs_to(const Context &context) const { return context_.get() == &context; }
    [[nodiscard]] Context &context() const { return *context_; }
    [[nodiscard]] const std::shared_ptr<Program> &program() const { return program_; }
    [[nodiscard]] std::uint32_t index() const { return index_; }
    [[nodiscard]] CUmodule module() const { return module_; }
    [[nodiscard]] const std::string &name() const { return program_->module().functions[index_].name; }
    // Compiles it when first called.
    [[nodiscard]] const KernelInfo &info();
    [[nodiscard]] bool compiled() const { return compiled_; }
    // Bytes of dynamic shared memory that a launch may ask for.
    [[nodiscard]] std::uint64_t dynamic_shared_limit();
    [[nodiscard]] bool uses_malloc() const { return uses_malloc_; }

    CUfunction handle = nullptr;
    FunctionSettings settings;

  private:
    std::shared_ptr<Context> context_;
    std::shared_ptr<Program> program_;
    std::uint32_t index_;
    CUmodule module_;
    bool uses_malloc_;
    std::once_flag once_;
    std::atomic<bool> compiled_{false};
    KernelInfo info_;
};

// A variable in memory.
struct Placed {
    CUdeviceptr address = 0;
    std::size_t size = 0;
};

// Managed variables of a library are the same in all contexts, and there before any.
using ManagedVariables = std::map<std::string, Placed, std::less<>>;

class Module : public std::enable_shared_from_this<Module> {
  public:
    // managed: variables that the library has placed already.
    Module(std::shared_ptr<Context> context, std::shared_ptr<Image> image, ManagedVariables managed = {})
        : context_(std::move(context)), image_(std::move(image)), managed_(std::move(managed)) {}
    [[nodiscard]] bool belongs_to(const Context &context) const { return context_.get() == &context; }
    [[nodiscard]] Context &context() const { return *context_; }

    // Parses the code and puts the variables into memory, once.
    [[nodiscard]] std::expected<void, ImageError> load();
    [[nodiscard]] Result<std::shared_ptr<Function>> function(std::string_view name);
    [[nodiscard]] Result<std::vector<std::shared_ptr<Function>>> all_functions();
    [[nodiscard]] Result<Placed> variable(std::string_view name);
    // Its variables and handles are gone.
    void unload();

    CUmodule handle = nullptr;
    std::atomic<bool> of_library{false};

  private:
    [[nodiscard]] std::expected<void, ImageError> load_once();
    [[nodiscard]] CUresult place(const ptx::Variable &variable, Placed &out);

    std::shared_ptr<Context> context_;
    std::shared_ptr<Image> image_;
    ManagedVariables managed_;
    std::mutex mutex_;
    std::optional<std::expected<void, ImageError>> loaded_;
    std::shared_ptr<Program> program_;
    std::vector<Placed> variables_; // by index in the module
    std::map<std::uint32_t, std::shared_ptr<Function>> functions_;
    std::map<std::string_view, std::uint32_t> kernels_;
};

class Library;

class Kernel {
  public:
    Kernel(std::shared_ptr<Library> library, std::string name)
        : library_(std::move(library)), name_(std::move(name)) {}
    [[nodiscard]] const std::string &name() const { return name_; }
    [[nodiscard]] Library &library() const { return *library_; }
    [[nodiscard]] Result<std::shared_ptr<Function>> function(Context &context);
    void forget(const Context &context);

    CUkernel handle = nullptr;

  private:
    std::shared_ptr<Library> library_;
    std::string name_;
    std::mutex mutex_;
    std::map<std::uint64_t, std::shared_ptr<Function>> functions_; // by context
};

class Library : public std::enable_shared_from_this<Library> {
  public:
    explicit Library(std::shared_ptr<Image> image) : image_(std::move(image)) {}
    [[nodiscard]] const std::shared_ptr<Image> &image() const { return image_; }
    [[nodiscard]] Result<std::shared_ptr<Kernel>> kernel(std::string_view name);
    [[nodiscard]] Result<std::vector<std::string>> kernel_names();
    [[nodiscard]] Result<std::shared_ptr<Module>> module(Context &context);
    [[nodiscard]] Result<Placed> managed_variable(std::string_view name);
    void forget(const Context &context);
    void unload();

    CUlibrary handle = nullptr;

  private:
    [[nodiscard]] CUresult place_managed(); // under mutex_

    std::shared_ptr<Image> image_;
    std::mutex mutex_;
    Heap heap_{[](std::uint64_t size) { return map_device(size, nullptr); }}; // of no context
    bool managed_placed_ = false;
    ManagedVariables managed_;
    std::map<std::string, std::shared_ptr<Kernel>, std::less<>> kernels_;
    std::map<std::uint64_t, std::shared_ptr<Module>> modules_; // by context
};

[[nodiscard]] Handles<Module, CUmodule, HandleKind::module> &modules();
[[nodiscard]] Handles<Function, CUfunction, HandleKind::function> &functions();
[[nodiscard]] Handles<Library, CUlibrary, HandleKind::library> &libraries();
[[nodiscard]] Handles<Kernel, CUkernel, HandleKind::kernel> &kernels();

// Libraries let go of what they had in the context.
void forget_in_libraries(const Context &context);
// A CUfunction, or a CUkernel that stands where one is expected, in the context.
[[nodiscard]] Result<std::shared_ptr<Function>> function_of(Context &context, CUfunction handle);
// Says on the log why an image was refused.
[[nodiscard]] CUresult report(const ImageError &error);

} // namespace singularity::softgpu::driver
