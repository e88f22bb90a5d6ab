// SPDX-License-Identifier: GPL-2.0-or-later
#include "driver/module.hpp"

#include "driver/log.hpp"
#include "driver/platform.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace singularity::softgpu::driver {

namespace {

bool in_memory(const ptx::Variable &variable) {
    return variable.space == ptx::Space::global || variable.space == ptx::Space::constant;
}

} // namespace

Handles<Module, CUmodule, HandleKind::module> &modules() {
    static auto &table = *new Handles<Module, CUmodule, HandleKind::module>; // outlives every thread
    return table;
}
Handles<Function, CUfunction, HandleKind::function> &functions() {
    static auto &table = *new Handles<Function, CUfunction, HandleKind::function>; // outlives every thread
    return table;
}
Handles<Library, CUlibrary, HandleKind::library> &libraries() {
    static auto &table = *new Handles<Library, CUlibrary, HandleKind::library>; // outlives every thread
    return table;
}
Handles<Kernel, CUkernel, HandleKind::kernel> &kernels() {
    static auto &table = *new Handles<Kernel, CUkernel, HandleKind::kernel>; // outlives every thread
    return table;
}

CUresult report(const ImageError &error) {
    kLog.error("cannot load a module: {}", error.text);
    return error.result;
}

// --- Functions

Function::Function(std::shared_ptr<Context> context, std::shared_ptr<Program> program, std::uint32_t index,
                   CUmodule module)
    : context_(std::move(context)), program_(std::move(program)), index_(index), module_(module),
      uses_malloc_([this] {
          const ptx::Function *const allocator = program_->module().function("malloc");
          return allocator != nullptr && !allocator->defined;
      }()) {}

const KernelInfo &Function::info() {
    std::call_once(once_, [this] {
        info_ = program_->info(index_);
        compiled_ = true;
    });
    return info_;
}

std::uint64_t Function::dynamic_shared_limit() {
    const int set = settings.max_dynamic_shared.load(std::memory_order_relaxed);
    if (set >= 0)
        return static_cast<std::uint64_t>(set);
    const std::uint64_t fixed = info().static_shared;
    return fixed >= kSharedDefault ? 0 : kSharedDefault - fixed;
}

Result<std::shared_ptr<Function>> function_of(Context &context, CUfunction handle) {
    if (auto function = functions().find(handle))
        return function;
    if (const auto kernel = kernels().find(std::bit_cast<CUkernel>(handle)))
        return kernel->function(context);
    return refused(CUDA_ERROR_INVALID_HANDLE);
}

// --- Modules

CUresult Module::place(const ptx::Variable &variable, Placed &out) {
    Heap &heap = variable.managed ? context_->managed_heap() : context_->device_heap();
    const auto block = heap.allocate(std::max<std::uint64_t>(variable.size, 1));
    if (!block)
        return block.error();
    out = {block->address, variable.size};
    Allocation allocation{};
    allocation.address = block->address;
    allocation.size = std::max<std::uint64_t>(variable.size, 1);
    allocation.kind = variable.managed ? MemoryKind::managed : MemoryKind::device;
    allocation.owner = context_->id();
    allocation.context = context_->handle();
    allocation.device = context_->device().ordinal();
    allocation.constant = variable.space == ptx::Space::constant;
    allocation.mapping = block->slab;
    allocation.internal = true;
    memory_map().add(std::move(allocation));
    return CUDA_SUCCESS;
}

std::expected<void, ImageError> Module::load_once() {
    auto code = image_->module();
    if (!code)
        return std::unexpected(std::move(code.error()));
    const auto &variables = (*code)->variables;
    variables_.resize(variables.size());
    std::vector<std::uint64_t> addresses(variables.size());
    for (std::size_t at = 0; at < variables.size(); ++at) {
        if (!in_memory(variables[at]))
            continue;
        if (variables[at].linkage == ptx::Linkage::external && variables[at].initial.empty())
            return std::unexpected(
                ImageError{CUDA_ERROR_INVALID_PTX,
                           "cannot link the module: " + variables[at].name + " is nowhere defined"});
        if (const auto shared = managed_.find(variables[at].name);
            variables[at].managed && shared != managed_.end()) {
            variables_[at] = shared->second;
            addresses[at] = shared->second.address;
            continue;
        }
        if (const CUresult placed = place(variables[at], variables_[at]); placed != CUDA_SUCCESS)
            return std::unexpected(ImageError{placed, "no memory for the variable " + variables[at].name});
        addresses[at] = variables_[at].address;
    }
    auto program = Program::load(*code, std::move(addresses));
    if (!program)
        return std::unexpected(ImageError{CUDA_ERROR_INVALID_PTX, program.error().message()});
    program_ = *std::move(program);
    for (std::size_t at = 0; at < variables_.size(); ++at)
        if (variables_[at].address != 0 && !managed_.contains(variables[at].name)) {
            const auto content = program_->initial_content(static_cast<std::uint32_t>(at));
            std::memcpy(std::bit_cast<void *>(variables_[at].address), content.data(),
                        std::min(content.size(), variables_[at].size));
        }
    for (const std::uint32_t kernel : program_->kernels())
        kernels_.emplace((*code)->functions[kernel].name, kernel);
    return {};
}

std::expected<void, ImageError> Module::load() {
    const std::scoped_lock lock(mutex_);
    if (!loaded_) {
        loaded_ = load_once();
        if (!*loaded_)
            (void)report(loaded_->error());
    }
    return *loaded_;
}

Result<std::shared_ptr<Function>> Module::function(std::string_view name) {
    if (const auto loaded = load(); !loaded)
        return refused(loaded.error().result);
    const std::scoped_lock lock(mutex_);
    const auto found = kernels_.find(name);
    if (found == kernels_.end())
        return refused(CUDA_ERROR_NOT_FOUND);
    auto &slot = functions_[found->second];
    if (slot == nullptr) {
        slot = std::make_shared<Function>(context_, program_, found->second, handle);
        slot->handle = functions().reserve();
        functions().put(slot->handle, slot);
    }
    return slot;
}

Result<std::vector<std::shared_ptr<Function>>> Module::all_functions() {
    if (const auto loaded = load(); !loaded)
        return refused(loaded.error().result);
    std::vector<std::shared_ptr<Function>> out;
    for (const std::uint32_t kernel : program_->kernels())
        if (auto one = function(program_->module().functions[kernel].name))
            out.push_back(*std::move(one));
    return out;
}

Result<Placed> Module::variable(std::string_view name) {
    if (const auto loaded = load(); !loaded)
        return refused(loaded.error().result);
    const auto &all = program_->module().variables;
    for (std::size_t at = 0; at < all.size(); ++at)
        if (all[at].name == name && variables_[at].address != 0)
            return variables_[at];
    return refused(CUDA_ERROR_NOT_FOUND);
}

void Module::unload() {
    const std::scoped_lock lock(mutex_);
    for (const auto &[index, function] : functions_)
        functions().take(function->handle);
    functions_.clear();
    const auto shared = [&](const Placed &placed) {
        return std::ranges::any_of(managed_,
                                   [&](const auto &one) { return one.second.address == placed.address; });
    };
    for (const Placed &placed : variables_)
        if (placed.address != 0 && !shared(placed)) {
            memory_map().remove(placed.address);
            if (!context_->device_heap().free(placed.address))
                context_->managed_heap().free(placed.address);
        }
    variables_.clear();
    context_->drop_ranges();
}

// --- Libraries

Result<std::shared_ptr<Function>> Kernel::function(Context &context) {
    const std::scoped_lock lock(mutex_);
    auto &slot = functions_[context.id()];
    if (slot == nullptr) {
        const auto module = library_->module(context);
        if (!module)
            return refused(module.error());
        auto function = (*module)->function(name_);
        if (!function)
            return refused(function.error());
        slot = *std::move(function);
    }
    return slot;
}

void Kernel::forget(const Context &context) {
    const std::scoped_lock lock(mutex_);
    functions_.erase(context.id());
}

Result<std::shared_ptr<Kernel>> Library::kernel(std::string_view name) {
    const auto code = image_->module();
    if (!code)
        return refused(report(code.error()));
    const ptx::Function *const function = (*code)->function(name);
    if (function == nullptr || !function->kernel)
        return refused(CUDA_ERROR_NOT_FOUND);
    const std::scoped_lock lock(mutex_);
    auto &slot = kernels_[std::string(name)];
    if (slot == nullptr) {
        slot = std::make_shared<Kernel>(shared_from_this(), std::string(name));
        slot->handle = kernels().reserve();
        kernels().put(slot->handle, slot);
    }
    return slot;
}

Result<std::vector<std::string>> Library::kernel_names() {
    const auto code = image_->module();
    if (!code)
        return refused(report(code.error()));
    std::vector<std::string> names;
    for (const ptx::Function &function : (*code)->functions)
        if (function.kernel && function.defined)
            names.push_back(function.name);
    return names;
}

CUresult Library::place_managed() {
    if (managed_placed_)
        return CUDA_SUCCESS;
    const auto code = image_->module();
    if (!code)
        return report(code.error());
    for (const ptx::Variable &variable : (*code)->variables) {
        if (!variable.managed || !in_memory(variable))
            continue;
        const std::uint64_t size = std::max<std::uint64_t>(variable.size, 1);
        const auto block = heap_.allocate(size);
        if (!block)
            return block.error();
        std::memcpy(std::bit_cast<void *>(block->address), variable.initial.data(), variable.initial.size());
        Allocation allocation{};
        allocation.address = block->address;
        allocation.size = size;
        allocation.kind = MemoryKind::managed;
        allocation.mapping = block->slab;
        allocation.internal = true;
        memory_map().add(std::move(allocation));
        managed_[variable.name] = {block->address, variable.size};
    }
    managed_placed_ = true;
    return CUDA_SUCCESS;
}

Result<Placed> Library::managed_variable(std::string_view name) {
    const std::scoped_lock lock(mutex_);
    if (const CUresult placed = place_managed(); placed != CUDA_SUCCESS)
        return refused(placed);
    const auto found = managed_.find(name);
    if (found == managed_.end())
        return refused(CUDA_ERROR_NOT_FOUND);
    return found->second;
}

Result<std::shared_ptr<Module>> Library::module(Context &context) {
    const std::scoped_lock lock(mutex_);
    auto &slot = modules_[context.id()];
    if (slot == nullptr) {
        if (const CUresult placed = place_managed(); placed != CUDA_SUCCESS) {
            modules_.erase(context.id());
            return refused(placed);
        }
        slot = std::make_shared<Module>(context.shared_from_this(), image_, managed_);
        slot->of_library = true;
        slot->handle = modules().reserve();
        modules().put(slot->handle, slot);
    }
    return slot;
}

void Library::forget(const Context &context) {
    std::vector<std::shared_ptr<Kernel>> mine;
    {
        const std::scoped_lock lock(mutex_);
        modules_.erase(context.id());
        for (const auto &[name, kernel] : kernels_)
            mine.push_back(kernel);
    }
    for (const auto &kernel : mine)
        kernel->forget(context);
}

void Library::unload() {
    std::map<std::uint64_t, std::shared_ptr<Module>> loaded;
    std::map<std::string, std::shared_ptr<Kernel>, std::less<>> gone;
    {
        const std::scoped_lock lock(mutex_);
        loaded.swap(modules_);
        gone.swap(kernels_);
    }
    for (const auto &[name, kernel] : gone)
        kernels().take(kernel->handle);
    for (const auto &[context, module] : loaded) {
        (void)module->context().synchronize();
        modules().take(module->handle);
        module->unload();
    }
    for (const auto &[name, placed] : managed_) {
        memory_map().remove(placed.address);
        heap_.free(placed.address);
    }
    managed_.clear();
}

void forget_in_libraries(const Context &context) {
    for (const auto &library : libraries().all([](const Library &) { return true; }))
        library->forget(context);
}

} // namespace singularity::softgpu::driver
