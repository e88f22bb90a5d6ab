// SPDX-License-Identifier: GPL-2.0-or-later
// cuGetExportTable: tables of functions that NVIDIA's libraries find under a UUID. No header declares them;
// what is answered here was learned by watching which slots cudart, cuBLAS and cuDNN 13.0 call and what they
// go on with, and from the open projects that answer them too (ZLUDA, LUPINE, wine's nvcuda).
//
// A table is an array of slots of eight bytes: the first is its size in bytes (the context-local storage has
// none, and ends with NULL), the others are functions. Callers do not check for NULL, so a slot that nobody
// was seen to call traps: it logs its arguments and returns CUDA_ERROR_NOT_SUPPORTED. The tables' addresses
// go into the integrity digest: they are static and never move.
#include "context_storage.hpp"
#include "integrity.hpp"
#include "log.hpp"
#include "proxy/libcuda/cuda.hpp"
#include "proxy/libcuda/entry.hpp"
#include "proxy/libcuda/hooks.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

namespace singularity::libcuda {

namespace {

enum class Table : std::uint8_t {
    cudart_interface,
    runtime_callback_hooks,
    tools_tls,
    context_local_storage,
    context_checks,
    integrity_check,
    unnamed_2131,
    processor_places,
    module_functions,
};

struct TableName {
    std::string_view uuid;
    std::string_view name;
};
constexpr std::array<TableName, 9> kNames{{
    {"6bd5fb6c-5bf4-e74a-8987-d93912fd9df9", "CUDART_INTERFACE"},
    {"a094798c-2e74-2e74-93f2-0800200c0a66", "TOOLS_RUNTIME_CALLBACK_HOOKS"},
    {"42d85a81-23f6-cb47-8298-f6e78a3aecdc", "TOOLS_TLS"},
    {"c693336e-1121-df11-a8c3-68f355d89593", "CONTEXT_LOCAL_STORAGE"},
    {"263e8860-7cd2-6143-92f6-bbd5006dfa7e", "CONTEXT_CHECKS"},
    {"d4082055-bde6-704b-8d34-ba123c66e1f2", "INTEGRITY_CHECK"},
    {"21318c60-9714-3248-8ca6-41ff7324c8f2", "2131"},
    {"1734dc26-800d-4745-8726-c0f1e7dd8bca", "processor places"},
    {"6e163fbe-b958-444d-835c-e182aff1991e", "module functions"},
}};

std::string uuid_text(const CUuuid &uuid) {
    std::string out;
    for (std::size_t at = 0; at < sizeof(uuid.bytes); ++at) {
        if (at == 4 || at == 6 || at == 8 || at == 10)
            out += '-';
        out += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[at]));
    }
    return out;
}

// --- Slots nobody was seen to call

template <Table kTable, std::size_t kSlot>
CUresult trap(std::uint64_t a, std::uint64_t b, std::uint64_t c, std::uint64_t d, std::uint64_t e,
              std::uint64_t f) {
    static std::atomic<bool> said{false};
    if (!said.exchange(true, std::memory_order_relaxed))
        kLog.warning(
            "export table {}, slot {} is not known and returns CUDA_ERROR_NOT_SUPPORTED (arguments {:#x} "
            "{:#x} {:#x} {:#x} {:#x} {:#x}; said once)",
            kNames[static_cast<std::size_t>(kTable)].name, kSlot, a, b, c, d, e, f);
    return CUDA_ERROR_NOT_SUPPORTED;
}

using Slot = const void *;

// A table of kSlots slots, the size word included, in which all functions trap.
template <Table kTable, std::size_t kSlots>
std::array<Slot, kSlots> traps() {
    std::array<Slot, kSlots> out{};
    [&]<std::size_t... kAt>(std::index_sequence<kAt...>) {
        ((out[kAt] = reinterpret_cast<Slot>(&trap<kTable, kAt>)), ...);
    }(std::make_index_sequence<kSlots>{});
    out[0] = std::bit_cast<Slot>(std::uintptr_t{kSlots * sizeof(Slot)});
    return out;
}

// --- CUDART_INTERFACE: how older runtimes load modules, and the primary context before it is retained

CUresult module_from_wrapper(CUmodule *out, const void *wrapper) { return cuModuleLoadData(out, wrapper); }
CUresult module_from_wrapper_with_options(CUmodule *out, const void *wrapper, void *a, void *b,
                                          std::uint32_t c) {
    if (a != nullptr || b != nullptr || c != 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    return cuModuleLoadData(out, wrapper);
}
CUresult module_from_fatbin(const void *header, CUmodule *out, void * /*unknown*/, void * /*unknown*/,
                            std::uint32_t /*unknown*/) {
    return cuModuleLoadFatBinary(out, header);
}
void module_teardown_hint(std::size_t /*unknown*/) {}
CUresult load_compilers() { return CUDA_SUCCESS; }

const auto &cudart_interface() {
    static const auto kTable = [] {
        auto table = traps<Table::cudart_interface, 13>();
        table[1] = reinterpret_cast<Slot>(&module_from_wrapper);
        table[2] = reinterpret_cast<Slot>(&singularity_primary_context_handle);
        table[6] = reinterpret_cast<Slot>(&module_from_wrapper_with_options);
        table[7] = reinterpret_cast<Slot>(&module_teardown_hint);
        table[8] = reinterpret_cast<Slot>(&module_from_fatbin);
        table[12] = reinterpret_cast<Slot>(&load_compilers);
        return table;
    }();
    return kTable;
}

// --- TOOLS_RUNTIME_CALLBACK_HOOKS: flags by which a profiler asks for callbacks; all zero: there is none

constexpr std::size_t kFlags = 1024; // cudart 13.0 wants at least 523 for slot 2, 14 for slot 6
constinit std::array<std::array<std::uint64_t, kFlags>, 2> callback_flags{};

template <std::size_t kWhich>
void flags(void **buffer, std::size_t *count) {
    *buffer = callback_flags[kWhich].data();
    *count = kFlags;
}
CUresult no_callback() { return CUDA_SUCCESS; }

const auto &runtime_callback_hooks() {
    static const auto kTable = [] {
        auto table = traps<Table::runtime_callback_hooks, 7>();
        table[1] = reinterpret_cast<Slot>(&no_callback);
        table[2] = reinterpret_cast<Slot>(&flags<0>);
        table[4] = reinterpret_cast<Slot>(&no_callback);
        table[6] = reinterpret_cast<Slot>(&flags<1>);
        return table;
    }();
    return kTable;
}

// --- TOOLS_TLS

CUresult current_context(CUcontext *out) { return cuCtxGetCurrent(out); }

const auto &tools_tls() {
    static const auto kTable = [] {
        auto table = traps<Table::tools_tls, 4>();
        table[2] = reinterpret_cast<Slot>(&current_context);
        return table;
    }();
    return kTable;
}

// --- CONTEXT_LOCAL_STORAGE: a context of NULL is the thread's current one

std::optional<CUcontext> resolve(CUcontext context) {
    if (context == nullptr && (cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == nullptr))
        return std::nullopt;
    return context;
}
CUresult storage_put(CUcontext context, void *key, void *value, StorageDestructor destructor) {
    const auto resolved = resolve(context);
    if (!resolved)
        return CUDA_ERROR_INVALID_CONTEXT;
    put_context_value(*resolved, key, value, destructor);
    return CUDA_SUCCESS;
}
CUresult storage_delete(CUcontext context, void *key) {
    const auto resolved = resolve(context);
    if (!resolved)
        return CUDA_ERROR_INVALID_CONTEXT;
    return delete_context_value(*resolved, key) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
CUresult storage_get(void **value, CUcontext context, void *key) {
    const auto resolved = resolve(context);
    if (!resolved)
        return CUDA_ERROR_INVALID_CONTEXT;
    return get_context_value(*resolved, key, value) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

const std::array<Slot, 4> kContextLocalStorage{reinterpret_cast<Slot>(&storage_put),
                                               reinterpret_cast<Slot>(&storage_delete),
                                               reinterpret_cast<Slot>(&storage_get), nullptr};

// --- CONTEXT_CHECKS

CUresult unwrap_context(CUcontext /*context*/, std::uint32_t *wrapped, void ** /*inner*/) {
    *wrapped = 0;
    return CUDA_SUCCESS;
}
std::uint32_t no_check() { return 0; }

const auto &context_checks() {
    static const auto kTable = [] {
        auto table = traps<Table::context_checks, 15>();
        table[2] = reinterpret_cast<Slot>(&unwrap_context);
        table[3] = reinterpret_cast<Slot>(&no_check);
        return table;
    }();
    return kTable;
}

// --- INTEGRITY_CHECK

CUresult integrity(std::uint32_t version, std::uint64_t unix_seconds, std::uint64_t *out);
CUresult integrity_enable(int /*enable*/) { return CUDA_SUCCESS; }

const auto &integrity_check() {
    static const auto kTable = [] {
        auto table = traps<Table::integrity_check, 3>();
        table[1] = reinterpret_cast<Slot>(&integrity);
        table[2] = reinterpret_cast<Slot>(&integrity_enable);
        return table;
    }();
    return kTable;
}

CUresult identity_of(int ordinal, DeviceIdentity &out) {
    CUdevice device = 0;
    CUuuid uuid{};
    const std::array<std::pair<CUdevice_attribute, std::int32_t *>, 3> numbers{
        {{CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, &out.pci_domain},
         {CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, &out.pci_bus},
         {CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, &out.pci_device}}};
    if (const auto result = cuDeviceGet(&device, ordinal); result != CUDA_SUCCESS)
        return result;
    if (const auto result = cuDeviceGetUuid_v2(&uuid, device); result != CUDA_SUCCESS)
        return result;
    std::memcpy(out.uuid.data(), uuid.bytes, out.uuid.size());
    for (const auto &[attribute, value] : numbers)
        if (const auto result = cuDeviceGetAttribute(value, attribute, device); result != CUDA_SUCCESS)
            return result;
    return CUDA_SUCCESS;
}

CUresult integrity(std::uint32_t version, std::uint64_t unix_seconds, std::uint64_t *out) {
    IntegrityQuestion question{
        .driver_version = static_cast<std::uint32_t>(driver_api::kCudaVersion),
        .version = version,
        .process = static_cast<std::uint32_t>(getpid()),
        .thread = static_cast<std::uint32_t>(pthread_self()),
        .cudart_table = reinterpret_cast<std::uintptr_t>(cudart_interface().data()),
        .integrity_table = reinterpret_cast<std::uintptr_t>(integrity_check().data()),
        .integrity_function = reinterpret_cast<std::uintptr_t>(&integrity),
        .unix_seconds = unix_seconds,
        .devices = {},
    };
    int count = 0;
    if (const auto result = cuDeviceGetCount(&count); result != CUDA_SUCCESS)
        return result;
    for (int ordinal = 0; ordinal < count; ++ordinal)
        if (const auto result = identity_of(ordinal, question.devices.emplace_back()); result != CUDA_SUCCESS)
            return result;
    const auto answer = integrity_answer(question);
    std::ranges::copy(answer, out);
    return CUDA_SUCCESS;
}

// --- "2131": cuBLASLt keys its kernels on the context's id; two questions about an unknown object, in pairs

CUresult context_id(CUcontext context, std::uint64_t *id) {
    unsigned long long value = 0;
    const auto result = cuCtxGetId(context, &value);
    if (result == CUDA_SUCCESS)
        *id = value;
    return result;
}
constinit std::array<std::uint64_t, 64> unknown_object{};
CUresult unknown_object_at(CUcontext /*context*/, std::uint64_t index, std::uint64_t *out) {
    if (index == UINT64_MAX)
        return CUDA_ERROR_INVALID_HANDLE;
    *out = reinterpret_cast<std::uintptr_t>(unknown_object.data());
    return CUDA_SUCCESS;
}
CUresult unknown_object_value(CUcontext /*context*/, std::uint64_t /*object*/, std::uint64_t *out) {
    *out = 0;
    return CUDA_SUCCESS;
}

const auto &unnamed_2131() {
    static const auto kTable = [] {
        auto table = traps<Table::unnamed_2131, 95>();
        table[4] = reinterpret_cast<Slot>(&context_id);
        table[39] = reinterpret_cast<Slot>(&unknown_object_value);
        table[51] = reinterpret_cast<Slot>(&unknown_object_at);
        return table;
    }();
    return kTable;
}

// --- Where multiprocessors lie, for cuBLASLt on compute capability 9.0

CUresult free_places(unsigned char *groups, unsigned char *positions) {
    std::free(groups);
    std::free(positions);
    return CUDA_SUCCESS;
}

const auto &processor_places() {
    static const auto kTable = [] {
        auto table = traps<Table::processor_places, 17>();
        table[4] = reinterpret_cast<Slot>(&singularity_processor_places);
        table[13] = reinterpret_cast<Slot>(&free_places);
        return table;
    }();
    return kTable;
}

// --- What functions a module has, for cuFFT, which does not know the name of what it has built

using FunctionVisitor = void (*)(void *data, CUfunction function, const char *name);

// How many; 0: it cannot be said.
std::uint64_t visit_functions(CUcontext /*context*/, CUmodule module, FunctionVisitor visit, void *data) {
    unsigned count = 0;
    if (cuModuleGetFunctionCount(&count, module) != CUDA_SUCCESS)
        return 0;
    std::vector<CUfunction> functions(count);
    if (cuModuleEnumerateFunctions(functions.data(), count, module) != CUDA_SUCCESS)
        return 0;
    for (auto *const function : functions) {
        const char *name = nullptr;
        if (cuFuncGetName(&name, function) != CUDA_SUCCESS)
            return 0;
        visit(data, function, name);
    }
    return count;
}

const auto &module_functions() {
    static const auto kTable = [] {
        auto table = traps<Table::module_functions, 99>();
        table[7] = reinterpret_cast<Slot>(&visit_functions);
        return table;
    }();
    return kTable;
}

const Slot *table_of(Table table) {
    switch (table) {
    case Table::cudart_interface:
        return cudart_interface().data();
    case Table::runtime_callback_hooks:
        return runtime_callback_hooks().data();
    case Table::tools_tls:
        return tools_tls().data();
    case Table::context_local_storage:
        return kContextLocalStorage.data();
    case Table::context_checks:
        return context_checks().data();
    case Table::integrity_check:
        return integrity_check().data();
    case Table::unnamed_2131:
        return unnamed_2131().data();
    case Table::processor_places:
        return processor_places().data();
    case Table::module_functions:
        return module_functions().data();
    }
    return nullptr;
}

} // namespace

} // namespace singularity::libcuda

CUresult cuGetExportTable(const void **ppExportTable, const CUuuid *pExportTableId) {
    using namespace singularity::libcuda;
    if (ppExportTable == nullptr || pExportTableId == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    *ppExportTable = nullptr;
    const auto uuid = uuid_text(*pExportTableId);
    const auto *const found = std::ranges::find(kNames, uuid, &TableName::uuid);
    if (found == kNames.end()) {
        *ppExportTable = singularity_export_table(*pExportTableId);
        if (*ppExportTable != nullptr)
            return CUDA_SUCCESS;
        kLog.debug("export table {} was asked for and is not known", uuid);
        return CUDA_ERROR_INVALID_VALUE;
    }
    *ppExportTable = static_cast<const void *>(table_of(static_cast<Table>(found - kNames.begin())));
    return CUDA_SUCCESS;
}
