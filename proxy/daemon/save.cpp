// SPDX-License-Identifier: GPL-2.0-or-later
#include "save.hpp"

#include "array_copier.hpp"
#include "device_copier.hpp"
#include "driver_mappings.hpp"
#include "image_objects.hpp"
#include "module_variables.hpp"
#include "proxy/protocol/all.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

namespace singularity::proxyd {

namespace {

using image::RecordType;

constexpr std::chrono::milliseconds kLook{2};

bool all_zero(std::span<const std::byte> bytes) {
    // An overlapping comparison with itself: the C library's speed.
    return bytes.empty() ||
           (bytes[0] == std::byte{0} && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

std::unexpected<Error> cannot(std::string what, const driver_api::Backend &driver, CUresult result) {
    return failure("save", std::move(what), result_name(driver, result), EIO);
}

class Save {
  public:
    Save(Session &session, const PausedClient &client, image::Writer &writer)
        : session_(session), client_(client), writer_(writer), driver_(session.driver()),
          copier_(driver_, session.slabs(), image::kPiece) {}

    [[nodiscard]] Expected<Saved> run();

  private:
    [[nodiscard]] Expected<void> client();
    [[nodiscard]] Expected<void> calls();
    [[nodiscard]] Expected<void> call(const JournalCall &call, std::uint32_t flags);
    [[nodiscard]] Expected<void> code(const Blob &blob);
    [[nodiscard]] Expected<void> slabs();
    [[nodiscard]] Expected<void> memory();
    [[nodiscard]] Expected<void> mappings();
    [[nodiscard]] Expected<void> unmapped_allocations();
    [[nodiscard]] Expected<void> arrays();
    [[nodiscard]] Expected<void> array(image::PlaceRecord place, CUarray array);
    [[nodiscard]] Expected<void> levels(std::uint64_t mipmap, std::uint64_t real);
    [[nodiscard]] Expected<void> textures();
    [[nodiscard]] Expected<void> variables();
    [[nodiscard]] Expected<void> variables_of(std::uint64_t owner, std::uint64_t real, std::uint64_t context,
                                              const std::vector<std::string> &names);
    [[nodiscard]] Expected<void> managed_variables();
    [[nodiscard]] Expected<void> events();
    [[nodiscard]] Expected<void> blobs();
    [[nodiscard]] Expected<void> communicators();
    [[nodiscard]] Expected<void> place(image::PlaceRecord place, std::string_view name, std::uint64_t from);
    [[nodiscard]] std::uint64_t any_context() const {
        return contexts_.empty() ? 0 : contexts_.front().first;
    }

    Session &session_;
    const PausedClient &client_;
    image::Writer &writer_;
    const driver_api::Backend &driver_;
    DeviceCopier copier_;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> contexts_; // handle, real
    std::map<image::Digest, bool> codes_;
    Saved saved_;
    image::ClientEndRecord counts_;
};

Expected<Saved> Save::run() {
    contexts_ = session_.objects().handles(driver_api::kHandleContext);
    session_.make_current_for(any_context());
    using Part = Expected<void> (Save::*)();
    constexpr std::array<Part, 13> kParts{&Save::client,       &Save::calls,     &Save::slabs,
                                          &Save::memory,       &Save::mappings,  &Save::unmapped_allocations,
                                          &Save::arrays,       &Save::variables, &Save::managed_variables,
                                          &Save::textures,     &Save::events,    &Save::blobs,
                                          &Save::communicators};
    for (const auto part : kParts)
        if (auto done = (this->*part)(); !done)
            return propagate(done);
    if (auto done = writer_.put(RecordType::client_end, counts_); !done)
        return propagate(done);
    saved_.calls = counts_.calls;
    saved_.content_bytes = counts_.content_bytes;
    return saved_;
}

Expected<void> Save::client() {
    const auto &place = session_.place();
    const auto &device = session_.back_end().identity();
    const auto &geometry = session_.channel().geometry();
    image::ClientRecord record;
    record.key = {.process = place.client.process, .ordinal = place.client.ordinal};
    record.window = place.window;
    record.window_size = place.window_size;
    record.geometry = {geometry.ring_size,   geometry.record_limit, geometry.slots,
                       geometry.inline_size, geometry.pieces,       geometry.piece_size};
    record.pid = client_.said.pid;
    record.noted = static_cast<std::int32_t>(session_.noted());
    record.device_ordinal = device.ordinal;
    record.compute_major = device.compute_major;
    record.compute_minor = device.compute_minor;
    record.devices = place.devices;
    record.node_device = {place.device.number, place.device.of};
    record.names = session_.objects().names_invented();
    record.device_name = device.name;
    return writer_.put(RecordType::client, record);
}

Expected<void> Save::code(const Blob &blob) {
    const auto bytes = std::span(blob.bytes).first(blob.size);
    const auto digest = image::digest_of(bytes);
    if (!codes_.emplace(digest, true).second)
        return {};
    saved_.code_bytes += bytes.size();
    if (auto done = writer_.put(RecordType::code, image::CodeRecord{.digest = digest, .size = bytes.size()});
        !done)
        return done;
    return writer_.put_pieces(RecordType::code_data, bytes);
}

Expected<void> Save::call(const JournalCall &call, std::uint32_t flags) {
    image::CallRecord record{.context = call.context,
                             .digest = {},
                             .flags = flags,
                             .names = static_cast<std::uint32_t>(call.names.size()),
                             .message_size = call.message.size()};
    if (call.code != nullptr) {
        if (auto done = code(*call.code); !done)
            return done;
        record.digest = image::digest_of(std::span(call.code->bytes).first(call.code->size));
    }
    ++counts_.calls;
    return writer_.put(RecordType::call, record, call.names, call.message);
}

// Early calls need nothing of the client's; the others wait for its host memory, and what has ended ends
// behind them.
Expected<void> Save::calls() {
    for (const auto *entry : session_.journal().entries()) {
        if (numbered_object(*entry))
            continue; // later, when there is the memory that it is of
        for (std::size_t at = 0; at < entry->calls.size(); ++at) {
            const std::uint32_t late = entry->of_graphs || entry->ends ? image::kCallLate : 0;
            const std::uint32_t continues = at + 1 < entry->calls.size() ? image::kCallContinues : 0;
            if (auto done = call(entry->calls[at], late | continues); !done)
                return done;
        }
    }
    return {};
}

Expected<void> Save::slabs() {
    for (const auto &range : session_.addresses().all()) {
        if (range.kind != RangeKind::slab)
            continue;
        ++counts_.slabs;
        image::SlabRecord record{.address = range.address, .size = range.size, .context = range.context};
        std::vector<image::ExportRecord> exports;
        if (const auto shared = session_.slabs().shared_at(range.address); shared.slab != nullptr) {
            record.key = shared.slab->key();
            record.made = shared.made ? 1 : 0;
            if (shared.made)
                for (const auto &one : shared.slab->exports())
                    exports.push_back({.offset = one.offset, .size = one.size, .number = one.number});
        }
        record.exports = exports.size();
        if (auto done = writer_.put(RecordType::slab, record, std::span(exports)); !done)
            return done;
    }
    return {};
}

// from: where the memory is now.
Expected<void> Save::place(image::PlaceRecord place, std::string_view name, std::uint64_t from) {
    ++counts_.places;
    // Without a context nothing can have written to it, and nothing can read it.
    if (contexts_.empty())
        place.flags |= image::kUntouched;
    if (auto done = writer_.put(RecordType::place, place, name); !done)
        return done;
    if ((place.flags & image::kUntouched) != 0)
        return {};
    for (std::uint64_t at = 0; at < place.size; at += image::kPiece) {
        const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(image::kPiece, place.size - at));
        const image::ContentRecord content{.offset = at};
        auto payload = writer_.begin(RecordType::content, sizeof(content) + size);
        if (!payload)
            return propagate(payload);
        std::memcpy(payload->data(), &content, sizeof(content));
        const auto piece = payload->subspan(sizeof(content));
        if (auto copied = copier_.read(from + at, piece); !copied)
            return copied;
        saved_.memory_bytes += size;
        if (all_zero(piece))
            continue;
        writer_.end();
        counts_.content_bytes += size;
    }
    return {};
}

// What the client says is allocated, as far as it lies in the session's slabs.
Expected<void> Save::memory() {
    std::vector<Range> slabs;
    for (const auto &range : session_.addresses().all())
        if (range.kind == RangeKind::slab)
            slabs.push_back(range);
    auto slab = slabs.begin();
    for (const auto &range : client_.ranges) {
        auto begin = range.address;
        const auto end = range.address + range.size;
        while (slab != slabs.end() && slab->address + slab->size <= begin)
            ++slab;
        for (auto at = slab; at != slabs.end() && at->address < end; ++at) {
            begin = std::max(begin, at->address);
            const auto stop = std::min(end, at->address + at->size);
            if (begin >= stop)
                continue;
            if (auto done = place({.kind = std::to_underlying(image::PlaceKind::memory),
                                   .context = at->context,
                                   .address = begin,
                                   .size = stop - begin},
                                  {}, begin);
                !done)
                return done;
        }
    }
    return {};
}

Expected<void> Save::mappings() {
    const auto device = session_.back_end().device();
    for (const auto &[address, mapping] : session_.mappings()) {
        const CUmemLocation location{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
        unsigned long long flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
        if (driver_.cuMemGetAccess != nullptr)
            if (const auto result = driver_.cuMemGetAccess(&flags, &location, address);
                result != CUDA_SUCCESS)
                return cannot(fmt::format("the access to the mapping at {:#x}", address), driver_, result);
        const auto set = [&](unsigned long long access) {
            const CUmemAccessDesc desc{.location = location, .flags = static_cast<CUmemAccess_flags>(access)};
            return driver_.cuMemSetAccess(address, mapping.size, &desc, 1);
        };
        if (flags == CU_MEM_ACCESS_FLAGS_PROT_NONE)
            if (const auto result = set(CU_MEM_ACCESS_FLAGS_PROT_READWRITE); result != CUDA_SUCCESS)
                return cannot(fmt::format("the mapping at {:#x}", address), driver_, result);
        auto done = place({.kind = std::to_underlying(image::PlaceKind::memory),
                           .context = any_context(),
                           .address = address,
                           .size = mapping.size},
                          {}, address);
        if (flags == CU_MEM_ACCESS_FLAGS_PROT_NONE)
            static_cast<void>(set(flags));
        if (done)
            done = writer_.put(RecordType::access,
                               image::AccessRecord{.address = address, .size = mapping.size, .flags = flags});
        if (!done)
            return done;
    }
    return {};
}

// Physical memory that no mapping shows as a whole: mapped somewhere for a moment.
Expected<void> Save::unmapped_allocations() {
    const auto mappings = session_.mappings();
    for (const auto &[handle, size] : session_.allocations()) {
        const bool shown = std::ranges::any_of(mappings, [&](const auto &entry) {
            return entry.second.allocation == handle && entry.second.offset == 0 && entry.second.size == size;
        });
        if (shown)
            continue;
        const auto real = session_.objects().real(driver_api::kHandleAllocation, handle);
        if (!real)
            continue;
        CUdeviceptr address = 0;
        if (const auto result = driver_.cuMemAddressReserve(&address, size, 0, 0, 0); result != CUDA_SUCCESS)
            return cannot(fmt::format("allocation {:#x}", handle), driver_, result);
        auto result =
            driver_.cuMemMap(address, size, 0, std::bit_cast<CUmemGenericAllocationHandle>(*real), 0);
        Expected<void> done;
        if (result == CUDA_SUCCESS) {
            CUmemAccessDesc desc{};
            desc.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = session_.back_end().device()};
            desc.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
            result = driver_.cuMemSetAccess(address, size, &desc, 1);
            if (result == CUDA_SUCCESS)
                done = place({.kind = std::to_underlying(image::PlaceKind::allocation),
                              .owner = handle,
                              .context = any_context(),
                              .size = size},
                             {}, address);
            static_cast<void>(driver_.cuMemUnmap(address, size));
        }
        static_cast<void>(driver_.cuMemAddressFree(address, size));
        if (result != CUDA_SUCCESS)
            return cannot(fmt::format("allocation {:#x}", handle), driver_, result);
        if (!done)
            return done;
    }
    return {};
}

Expected<void> Save::array(image::PlaceRecord place, CUarray array) {
    const ArrayCopier copier(driver_, array);
    session_.make_current_for(place.context);
    auto shape = copier.shape();
    if (!shape)
        return propagate(shape);
    place.size = shape->size();
    ++counts_.places;
    if (auto done = writer_.put(RecordType::place, place, std::string_view()); !done)
        return done;
    for (std::uint64_t at = 0; at < place.size;) {
        const auto size = static_cast<std::size_t>(ArrayCopier::piece_at(*shape, at, image::kPiece));
        const image::ContentRecord content{.offset = at};
        auto payload = writer_.begin(RecordType::content, sizeof(content) + size);
        if (!payload)
            return propagate(payload);
        std::memcpy(payload->data(), &content, sizeof(content));
        if (auto copied = copier.read(*shape, at, payload->subspan(sizeof(content))); !copied)
            return copied;
        // Zeros as well: what a new array holds is not said.
        writer_.end();
        saved_.memory_bytes += size;
        counts_.content_bytes += size;
        at += size;
    }
    return {};
}

Expected<void> Save::levels(std::uint64_t mipmap, std::uint64_t real) {
    const auto context = session_.objects().context_of(mipmap);
    session_.make_current_for(context);
    return for_each_level(driver_, real, [&](unsigned level, CUarray one) {
        return array({.kind = std::to_underlying(image::PlaceKind::mipmap_level),
                      .owner = mipmap,
                      .context = context,
                      .address = level},
                     one);
    });
}

Expected<void> Save::arrays() {
    for (const auto *entry : session_.journal().entries()) {
        const auto handle = own_array(*entry);
        const auto real = handle ? session_.objects().real(driver_api::kHandleArray, *handle) : std::nullopt;
        if (!real)
            continue; // gone, and only needed by what it has left behind
        if (auto done = array({.kind = std::to_underlying(image::PlaceKind::array),
                               .owner = *handle,
                               .context = session_.objects().context_of(*handle)},
                              std::bit_cast<CUarray>(*real));
            !done)
            return done;
    }
    for (const auto &[handle, real] : session_.objects().handles(driver_api::kHandleMipmap))
        if (auto done = levels(handle, real); !done)
            return done;
    return {};
}

// Behind the memory and the arrays that they are of.
Expected<void> Save::textures() {
    for (const auto *entry : session_.journal().entries()) {
        const auto handle = numbered_object(*entry);
        if (!handle)
            continue;
        const auto real = session_.objects().real(kind_of(*handle), *handle);
        if (!real)
            continue;
        if (auto done = writer_.put(RecordType::object_number,
                                    image::ObjectNumberRecord{.object = *handle, .number = *real});
            !done)
            return done;
        if (auto done = call(entry->calls.front(), 0); !done)
            return done;
    }
    return {};
}

Expected<void> Save::variables_of(std::uint64_t owner, std::uint64_t real, std::uint64_t context,
                                  const std::vector<std::string> &names) {
    const bool library = kind_of(owner) == driver_api::kHandleLibrary;
    session_.make_current_for(context);
    std::set<std::string_view> done_already;
    for (const auto &name : names) {
        if (!done_already.insert(name).second)
            continue;
        CUdeviceptr address = 0;
        std::size_t size = 0;
        auto result = CUDA_ERROR_NOT_SUPPORTED;
        // The driver may load the library into the context for this question.
        const MappingsOf its(session_.place().mappings());
        if (library && driver_.cuLibraryGetGlobal != nullptr)
            result =
                driver_.cuLibraryGetGlobal(&address, &size, std::bit_cast<CUlibrary>(real), name.c_str());
        else if (!library && driver_.cuModuleGetGlobal_v2 != nullptr)
            result =
                driver_.cuModuleGetGlobal_v2(&address, &size, std::bit_cast<CUmodule>(real), name.c_str());
        // Names of images are more than names of variables.
        if (result == CUDA_ERROR_NOT_FOUND || (result == CUDA_SUCCESS && size == 0))
            continue;
        if (result != CUDA_SUCCESS)
            return cannot(fmt::format("variable {}", name), driver_, result);
        const bool seen = session_.journal().is_seen({.owner = owner, .managed = false, .name = name});
        if (auto done = place({.kind = std::to_underlying(image::PlaceKind::variable),
                               .flags = seen ? image::kAddressSeen : 0,
                               .owner = owner,
                               .context = context,
                               .address = address,
                               .size = size,
                               .name_size = name.size()},
                              name, address);
            !done)
            return done;
    }
    return {};
}

Expected<void> Save::variables() {
    const auto capability = static_cast<unsigned>(session_.back_end().identity().compute_major * 10 +
                                                  session_.back_end().identity().compute_minor);
    for (const auto *entry : session_.journal().entries())
        for (const auto &call : entry->calls) {
            if (call.code == nullptr)
                continue;
            const auto id = static_cast<protocol::Id>(protocol::peek_id(call.message));
            if (id != protocol::Id::load_module && id != protocol::Id::load_library)
                continue;
            std::uint64_t owner = 0;
            std::memcpy(&owner, call.message.data() + sizeof(driver_api::MessageHeader), sizeof(owner));
            const auto real = session_.objects().real(kind_of(owner), owner);
            if (!real)
                continue; // gone, and only needed by what it has left behind
            const auto names =
                names_of_module(std::span(call.code->bytes).first(call.code->size), capability);
            if (names.allocates)
                return failure("save",
                               fmt::format("{} {:#x}", driver_api::handle_kind_name(kind_of(owner)), owner),
                               "its kernels call malloc, and nobody can find such memory", ENOTSUP);
            if (id == protocol::Id::load_module) {
                if (auto done =
                        variables_of(owner, *real, session_.objects().context_of(owner), names.variables);
                    !done)
                    return done;
                continue;
            }
            for (const auto &[context, real_context] : contexts_)
                if (auto done = variables_of(owner, *real, context, names.variables); !done)
                    return done;
        }
    return {};
}

// Of no context; only those that were asked for matter to anybody.
Expected<void> Save::managed_variables() {
    for (const auto &seen : session_.journal().all_seen()) {
        const auto library = session_.objects().real(driver_api::kHandleLibrary, seen.owner);
        if (!seen.managed || !library || driver_.cuLibraryGetManaged == nullptr)
            continue;
        CUdeviceptr address = 0;
        std::size_t size = 0;
        if (const auto result = driver_.cuLibraryGetManaged(
                &address, &size, std::bit_cast<CUlibrary>(*library), seen.name.c_str());
            result != CUDA_SUCCESS)
            return cannot(fmt::format("managed variable {}", seen.name), driver_, result);
        if (auto done = place({.kind = std::to_underlying(image::PlaceKind::variable),
                               .flags = image::kAddressSeen | image::kManaged,
                               .owner = seen.owner,
                               .context = any_context(),
                               .address = address,
                               .size = size,
                               .name_size = seen.name.size()},
                              seen.name, address);
            !done)
            return done;
    }
    return {};
}

// An event of which the driver can tell the time has been recorded; whether one without a time was makes no
// difference once everything is done.
Expected<void> Save::events() {
    const auto times = session_.event_times().saved(
        driver_, session_.events(), [this](std::uint64_t context) { session_.make_current_for(context); });
    for (const auto &time : times) {
        const image::EventRecord record{
            .event = time.event, .context = time.context, .before = time.before, .later = time.later.size()};
        if (auto done = writer_.put(RecordType::event, record, std::span(time.later)); !done)
            return done;
    }
    return {};
}

Expected<void> Save::blobs() {
    for (const auto &[number, blob] : session_.blobs().all()) {
        const auto held = std::min<std::uint64_t>(blob->bytes.size(), blob->size);
        if (auto done = writer_.put(RecordType::blob,
                                    image::BlobRecord{.number = number, .size = blob->size, .held = held});
            !done)
            return done;
        if (auto done = writer_.put_pieces(RecordType::blob_data, std::span(blob->bytes).first(held)); !done)
            return done;
    }
    return {};
}

Expected<void> Save::communicators() {
    for (const auto &one : session_.communicators().descriptors()) {
        ++counts_.communicators;
        if (auto done = writer_.put(RecordType::communicator,
                                    image::CommunicatorRecord{.number = one.number,
                                                              .context = one.context,
                                                              .key = one.place.key,
                                                              .rank = one.place.rank,
                                                              .size = one.place.size,
                                                              .completed = one.place.completed});
            !done)
            return done;
    }
    return {};
}

} // namespace

Expected<void> settle(Session &session, const PausedClient &client, const Deadline &deadline) {
    const auto carried_out = [&] {
        return session.channel().consumed(client.said.head) && session.workers_idle();
    };
    if (auto waited = wait_until([&] { return carried_out() || session.ending(); }, deadline,
                                 session.who() + " to have its calls carried out", kLook);
        !waited)
        return waited;
    if (session.ending())
        return failure("save", session.who(), "its session has ended", ECONNRESET);
    return {};
}

Expected<void> drain(Session &session, const Deadline &deadline) {
    const auto &driver = session.driver();
    if (driver.cuStreamQuery == nullptr)
        return failure("save", session.who(), "the driver has no cuStreamQuery", ENOSYS);
    std::optional<Error> failed;
    const auto idle = [&](std::uint64_t context, CUstream stream) {
        session.make_current_for(context);
        const auto result = driver.cuStreamQuery(stream);
        if (result == CUDA_ERROR_NOT_READY)
            return false;
        if (result != CUDA_SUCCESS && !failed)
            failed = Error{"save", session.who(),
                           fmt::format("its context has failed: {}", result_name(driver, result)), EIO};
        return true;
    };
    // All of a context's work is done when all its streams are, the legacy one included.
    const auto done = [&] {
        for (const auto &[context, real] : session.objects().handles(driver_api::kHandleContext))
            if (!idle(context, nullptr))
                return false;
        for (const auto &[stream, real] : session.objects().handles(driver_api::kHandleStream))
            if (!idle(session.objects().context_of(stream), std::bit_cast<CUstream>(real)))
                return false;
        return true;
    };
    if (auto waited = wait_until([&] { return session.ending() || done(); }, deadline,
                                 session.who() + " to finish what runs on the device", kLook);
        !waited)
        return waited;
    if (session.ending())
        return failure("save", session.who(), "its session has ended", ECONNRESET);
    if (failed)
        return std::unexpected(*failed);
    // Nothing waits any more: this brings out what kernels have printed.
    for (const auto &[context, real] : session.objects().handles(driver_api::kHandleContext)) {
        session.make_current_for(context);
        if (const auto result = driver.cuCtxSynchronize == nullptr ? CUDA_SUCCESS : driver.cuCtxSynchronize();
            result != CUDA_SUCCESS)
            return failure("save", session.who(),
                           fmt::format("its context has failed: {}", result_name(driver, result)), EIO);
    }
    session.relay_output();
    if (const auto result = session.event_times().stop(
            driver, session.events(), [&](std::uint64_t context) { session.make_current_for(context); });
        result != CUDA_SUCCESS)
        return cannot(session.who() + "'s time", driver, result);
    return {};
}

namespace {

// Why the array cannot be saved; nothing: it can.
std::optional<std::string> not_saved(Session &session, std::uint64_t handle, CUarray array) {
    session.make_current_for(session.objects().context_of(handle));
    const auto shape = ArrayCopier(session.driver(), array).shape();
    if (shape)
        return std::nullopt;
    return fmt::format("array {:#x} cannot be saved: {}", handle, shape.error().message());
}

} // namespace

std::optional<Obstacle> obstacle(Session &session) {
    const auto &driver = session.driver();
    if (driver.cuStreamIsCapturing != nullptr)
        for (const auto &[handle, real] : session.objects().handles(driver_api::kHandleStream)) {
            auto status = CU_STREAM_CAPTURE_STATUS_NONE;
            session.make_current_for(session.objects().context_of(handle));
            if (driver.cuStreamIsCapturing(std::bit_cast<CUstream>(real), &status) == CUDA_SUCCESS &&
                status == CU_STREAM_CAPTURE_STATUS_ACTIVE)
                return Obstacle{.what = fmt::format("stream {:#x} is being captured", handle), .soon = true};
        }
    bool soon = false;
    if (auto text = session.communicators().unfinished(soon); !text.empty())
        return Obstacle{.what = std::move(text), .soon = soon};
    // What a driver keeps in a way of its own, and what would have to be made of memory that is not there.
    for (const auto *entry : session.journal().entries()) {
        if (const auto handle = own_array(*entry))
            if (const auto real = session.objects().real(driver_api::kHandleArray, *handle))
                if (auto text = not_saved(session, *handle, std::bit_cast<CUarray>(*real)))
                    return Obstacle{.what = *std::move(text)};
        if (const auto handle = numbered_object(*entry))
            if (const auto memory = memory_of_texture(*entry);
                memory && !session.reaches(memory->first, memory->second))
                return Obstacle{
                    .what = fmt::format("texture {:#x} is of memory ({:#x}) that was freed: destroy it",
                                        *handle, memory->first)};
    }
    for (const auto &[handle, real] : session.objects().handles(driver_api::kHandleMipmap)) {
        std::optional<std::string> text;
        session.make_current_for(session.objects().context_of(handle));
        static_cast<void>(for_each_level(driver, real, [&](unsigned, CUarray level) -> Expected<void> {
            if (!text)
                text = not_saved(session, handle, level);
            return {};
        }));
        if (text)
            return Obstacle{.what = *std::move(text)};
    }
    return std::nullopt;
}

Expected<Saved> save_session(Session &session, const PausedClient &client, image::Writer &writer) {
    return Save(session, client, writer).run();
}

} // namespace singularity::proxyd
