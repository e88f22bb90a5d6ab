// SPDX-License-Identifier: GPL-2.0-or-later
#include "restore.hpp"

#include "array_copier.hpp"
#include "device_copier.hpp"
#include "driver_mappings.hpp"
#include "proxy/protocol/all.hpp"
#include "wanted_number.hpp"
#include "window_area.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace singularity::proxyd {

namespace {

using image::Record;
using image::RecordType;

// More than any program has; an image must not fill the daemon's memory.
constexpr std::uint64_t kMostCode = std::uint64_t{8} << 30;
constexpr std::uint64_t kMostLateBytes = std::uint64_t{1} << 30;
constexpr std::uint32_t kMostClients = 4096;

std::string_view text_in(std::span<const std::byte> bytes) {
    return {static_cast<const char *>(static_cast<const void *>(bytes.data())), bytes.size()};
}

using Codes = std::map<image::Digest, std::shared_ptr<const Blob>>;

class Restore {
  public:
    Restore(image::Reader &reader, const BackEnd &back_end, Restored &out)
        : reader_(reader), back_end_(back_end), driver_(back_end.driver()), out_(out), session_(*out.session),
          copier_(driver_, session_.slabs(), image::kPiece) {}
    ~Restore() { unmap_allocation(); }
    Restore(const Restore &) = delete;
    Restore &operator=(const Restore &) = delete;
    Restore(Restore &&) = delete;
    Restore &operator=(Restore &&) = delete;

    [[nodiscard]] Expected<void> run();

  private:
    using Part = Expected<void> (Restore::*)(const Record &record);
    [[nodiscard]] static Part part_of(RecordType type);

    [[nodiscard]] Expected<void> code(const Record &record);
    [[nodiscard]] Expected<void> call(const Record &record);
    [[nodiscard]] Expected<void> slab(const Record &record);
    [[nodiscard]] Expected<void> place(const Record &record);
    [[nodiscard]] Expected<void> content(const Record &record);
    [[nodiscard]] Expected<void> access(const Record &record);
    [[nodiscard]] Expected<void> event(const Record &record);
    [[nodiscard]] Expected<void> object_number(const Record &record);
    [[nodiscard]] Expected<void> blob(const Record &record);
    [[nodiscard]] Expected<void> communicator(const Record &record);

    [[nodiscard]] Expected<std::uint64_t> memory_place(const Record &record, const image::PlaceRecord &place);
    [[nodiscard]] Expected<std::uint64_t>
    variable_place(const Record &record, const image::PlaceRecord &place, std::string_view name);
    [[nodiscard]] Expected<std::uint64_t> allocation_place(const Record &record,
                                                           const image::PlaceRecord &place);
    [[nodiscard]] Expected<void> array_place(const Record &record, const image::PlaceRecord &place);
    [[nodiscard]] CUresult allow(std::uint64_t address, std::uint64_t size, unsigned long long flags);
    // What of a place is not in the image is zero.
    [[nodiscard]] Expected<void> clear(const Record &record, const image::PlaceRecord &place,
                                       std::uint64_t address) {
        if ((place.flags & image::kUntouched) != 0)
            return {};
        if (auto done = copier_.zero(address, place.size); !done)
            return record.wrong(done.error().message());
        return {};
    }
    void unmap_allocation();
    [[nodiscard]] std::unexpected<Error> driver_says(const Record &record, std::string_view what,
                                                     CUresult result) const {
        return record.wrong(
            fmt::format("{}: {}{}", what, result_name(driver_, result),
                        result == CUDA_ERROR_OUT_OF_MEMORY
                            ? ": the memory of all that share this device does not fit on it; "
                              "restore on more devices"
                            : ""));
    }

    image::Reader &reader_;
    const BackEnd &back_end_;
    const driver_api::Backend &driver_;
    Restored &out_;
    Session &session_;
    DeviceCopier copier_;
    Codes codes_;
    std::uint64_t code_bytes_ = 0;
    std::vector<JournalCall> late_;
    std::uint64_t late_bytes_ = 0;
    image::ClientEndRecord counts_;
    struct Place {
        std::uint64_t to = 0; // where its memory is here
        std::uint64_t size = 0;
    };
    std::optional<Place> place_;
    struct ArrayPlace {
        CUarray array = nullptr;
        ArrayShape shape;
    };
    std::optional<ArrayPlace> array_;    // the current place is one
    image::ObjectNumberRecord numbered_; // of the next call
    Place mapped_allocation_;            // for the current place
};

Restore::Part Restore::part_of(RecordType type) {
    switch (type) {
    case RecordType::code:
        return &Restore::code;
    case RecordType::call:
        return &Restore::call;
    case RecordType::slab:
        return &Restore::slab;
    case RecordType::place:
        return &Restore::place;
    case RecordType::content:
        return &Restore::content;
    case RecordType::access:
        return &Restore::access;
    case RecordType::object_number:
        return &Restore::object_number;
    case RecordType::event:
        return &Restore::event;
    case RecordType::blob:
        return &Restore::blob;
    case RecordType::communicator:
        return &Restore::communicator;
    default:
        return nullptr;
    }
}

Expected<void> Restore::run() {
    for (;;) {
        auto record = reader_.next();
        if (!record)
            return propagate(record);
        if (record->type == RecordType::client_end) {
            const auto said = image::fixed_of<image::ClientEndRecord>(*record);
            if (!said)
                return std::unexpected(said.error());
            if (said->calls != counts_.calls || said->slabs != counts_.slabs ||
                said->places != counts_.places || said->communicators != counts_.communicators ||
                said->content_bytes != counts_.content_bytes)
                return record->wrong("it counts other records than those in front of it");
            out_.content_bytes = counts_.content_bytes;
            session_.set_late(std::move(late_));
            return {};
        }
        const auto part = part_of(record->type);
        if (part == nullptr)
            return record->wrong("it has no place inside of a client's image");
        if (auto done = (this->*part)(*record); !done)
            return done;
    }
}

Expected<void> Restore::code(const Record &record) {
    const auto fixed = image::fixed_of<image::CodeRecord>(record);
    if (!fixed)
        return std::unexpected(fixed.error());
    if (fixed->size == 0 || fixed->size > kMostBlobBytes || fixed->size > kMostCode - code_bytes_)
        return record.wrong(fmt::format("a module image of {} bytes is not possible", fixed->size));
    code_bytes_ += fixed->size;
    const auto name = record.name();
    auto made = std::make_shared<Blob>();
    made->size = fixed->size;
    if (auto read = reader_.pieces(RecordType::code_data, fixed->size,
                                   [&](std::span<const std::byte> bytes) -> Expected<void> {
                                       made->bytes.insert(made->bytes.end(), bytes.begin(), bytes.end());
                                       return {};
                                   });
        !read)
        return read;
    if (image::digest_of(made->bytes) != fixed->digest)
        return failure("accept", name + " of the device image", "the module image is not the one it names",
                       EPROTO);
    made->bytes.push_back(std::byte{0});
    codes_[fixed->digest] = std::move(made);
    return {};
}

Expected<void> Restore::call(const Record &record) {
    std::span<const std::byte> tail;
    const auto fixed = image::fixed_of<image::CallRecord>(record, &tail);
    if (!fixed)
        return std::unexpected(fixed.error());
    const auto names_size = std::uint64_t{fixed->names} * sizeof(std::uint64_t);
    if (names_size > tail.size() || tail.size() - names_size != fixed->message_size ||
        fixed->message_size < sizeof(driver_api::MessageHeader))
        return record.wrong("its names and its message are not as long as it says");
    ++counts_.calls;
    JournalCall call;
    call.context = fixed->context;
    call.names.resize(fixed->names);
    if (names_size != 0)
        std::memcpy(call.names.data(), tail.data(), names_size);
    const auto message = tail.subspan(names_size);
    call.message.assign(message.begin(), message.end());
    if (fixed->digest != image::Digest{}) {
        const auto found = codes_.find(fixed->digest);
        if (found == codes_.end())
            return record.wrong("its module image did not come before it");
        call.code = found->second;
    }
    if ((fixed->flags & image::kCallLate) != 0) {
        late_bytes_ += record.payload.size();
        if (late_bytes_ > kMostLateBytes)
            return record.wrong("there are too many calls for later");
        late_.push_back(std::move(call));
        return {};
    }
    const auto numbered = std::exchange(numbered_, {});
    const WantedNumber wanted(numbered.number);
    if (auto done = session_.repeat(call); !done)
        return record.wrong(done.error().message());
    if (numbered.object == 0)
        return {};
    // Whatever the driver has done: no program must use another object than it means.
    const auto real = session_.objects().real(kind_of(numbered.object), numbered.object);
    if (real != numbered.number)
        return record.wrong(fmt::format(
            "the program knows {} {:#x} as {:#x}, and this driver does not give it that number again",
            driver_api::handle_kind_name(kind_of(numbered.object)), numbered.object, numbered.number));
    return {};
}

Expected<void> Restore::slab(const Record &record) {
    std::span<const std::byte> tail;
    const auto fixed = image::fixed_of<image::SlabRecord>(record, &tail);
    if (!fixed)
        return std::unexpected(fixed.error());
    ++counts_.slabs;
    if (fixed->size == 0 || fixed->size % protocol::kSlabUnit != 0 ||
        fixed->address % protocol::kSlabUnit != 0)
        return record.wrong(fmt::format("{:#x}+{:#x} is no slab", fixed->address, fixed->size));
    if (fixed->exports > tail.size() / sizeof(image::ExportRecord) ||
        tail.size() != fixed->exports * sizeof(image::ExportRecord))
        return record.wrong("its exported allocations are not as many as it says");
    const Range range{
        .address = fixed->address, .size = fixed->size, .kind = RangeKind::slab, .context = fixed->context};
    if (auto added = session_.addresses().add(range); !added)
        return record.wrong(added.error().message());
    // Who comes first makes it anew, and all write what it holds.
    auto slab = fixed->key == SharedSlab::Key{} ? nullptr : SharedSlabs::all().find(fixed->key);
    const bool joins = slab != nullptr;
    if (joins && slab->device() != session_.place().device.number)
        return record.wrong("its slab is another device's");
    const auto result = [&] {
        const Session::Turn turn(session_);
        if (!turn)
            return CUDA_ERROR_OUT_OF_MEMORY;
        if (!joins) {
            const auto mapped = session_.map_slab(range);
            return mapped != CUDA_SUCCESS || fixed->key == SharedSlab::Key{}
                       ? mapped
                       : session_.slabs().share(range.address, range.size, fixed->key,
                                                session_.place().device.number, slab);
        }
        const auto held = session_.hold_slice();
        return held == CUDA_SUCCESS ? session_.slabs().open(range.address, range.size, range.context, slab)
                                    : held;
    }();
    session_.make_current_for(fixed->context);
    if (result != CUDA_SUCCESS) {
        static_cast<void>(session_.addresses().remove(range));
        return driver_says(
            record, fmt::format("the slab {:#x}+{:#x} cannot be had here", fixed->address, fixed->size),
            result);
    }
    for (std::size_t at = 0; at < fixed->exports; ++at) {
        image::ExportRecord one;
        std::memcpy(&one, tail.data() + at * sizeof(one), sizeof(one));
        if (slab == nullptr || !slab->add({.offset = one.offset, .size = one.size, .number = one.number}))
            return record.wrong(
                fmt::format("an exported allocation at {:#x} does not lie in a shared slab", one.offset));
    }
    if (slab != nullptr)
        session_.slabs().set_made(range.address, range.size, fixed->made != 0);
    if (joins)
        return {};
    if (auto done = copier_.zero(range.address, range.size); !done)
        return record.wrong(done.error().message());
    return {};
}

CUresult Restore::allow(std::uint64_t address, std::uint64_t size, unsigned long long flags) {
    CUmemAccessDesc access{};
    access.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = back_end_.device()};
    access.flags = static_cast<CUmemAccess_flags>(flags);
    return driver_.cuMemSetAccess(address, size, &access, 1);
}

Expected<std::uint64_t> Restore::memory_place(const Record &record, const image::PlaceRecord &place) {
    const auto range = session_.addresses().around(place.address, place.size);
    if (range && range->kind == RangeKind::slab)
        return place.address;
    const auto mapping = session_.mapping_at(place.address);
    if (!range || range->kind != RangeKind::reservation || mapping != place.address ||
        session_.mappings().at(*mapping).size != place.size)
        return record.wrong(
            fmt::format("{:#x}+{:#x} is neither in a slab nor a mapping", place.address, place.size));
    if (const auto result = allow(place.address, place.size, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        result != CUDA_SUCCESS)
        return driver_says(record, fmt::format("the mapping at {:#x}", place.address), result);
    if (auto done = clear(record, place, place.address); !done)
        return std::unexpected(done.error());
    return place.address;
}

Expected<std::uint64_t> Restore::variable_place(const Record &record, const image::PlaceRecord &place,
                                                std::string_view name) {
    const std::string text(name);
    const bool library = kind_of(place.owner) == driver_api::kHandleLibrary;
    const auto real = library || kind_of(place.owner) == driver_api::kHandleModule
                          ? session_.objects().real(kind_of(place.owner), place.owner)
                          : std::nullopt;
    if (!real || *real == 0)
        return record.wrong(
            fmt::format("variable {} is of {:#x}, which is no module and no library", text, place.owner));
    CUdeviceptr address = 0;
    std::size_t size = 0;
    auto result = CUDA_ERROR_NOT_SUPPORTED;
    const bool managed = (place.flags & image::kManaged) != 0;
    if (managed && library && driver_.cuLibraryGetManaged != nullptr)
        result = driver_.cuLibraryGetManaged(&address, &size, std::bit_cast<CUlibrary>(*real), text.c_str());
    else if (managed)
        result = CUDA_ERROR_NOT_SUPPORTED;
    else if (library && driver_.cuLibraryGetGlobal != nullptr)
        result = driver_.cuLibraryGetGlobal(&address, &size, std::bit_cast<CUlibrary>(*real), text.c_str());
    else if (!library && driver_.cuModuleGetGlobal_v2 != nullptr)
        result = driver_.cuModuleGetGlobal_v2(&address, &size, std::bit_cast<CUmodule>(*real), text.c_str());
    if (result != CUDA_SUCCESS)
        return driver_says(record, fmt::format("variable {}", text), result);
    if (size != place.size)
        return record.wrong(fmt::format("variable {} has {} bytes here and had {}", text, size, place.size));
    const bool seen = (place.flags & image::kAddressSeen) != 0;
    if (seen && address != place.address)
        return record.wrong(
            fmt::format("variable {} is at {:#x} here; the program knows it at {:#x}, which this "
                        "driver does not give back",
                        text, address, place.address));
    if (seen)
        session_.journal().seen({.owner = place.owner, .managed = managed, .name = text});
    if (managed)
        session_.addresses().remember_foreign(address, size, place.owner);
    if (auto done = clear(record, place, address); !done)
        return std::unexpected(done.error());
    return address;
}

Expected<std::uint64_t> Restore::allocation_place(const Record &record, const image::PlaceRecord &place) {
    const auto real = session_.objects().real(driver_api::kHandleAllocation, place.owner);
    const auto known = session_.allocations();
    const auto size = known.find(place.owner);
    if (!real || size == known.end() || size->second != place.size)
        return record.wrong(fmt::format("{:#x} is no allocation of {} bytes", place.owner, place.size));
    CUdeviceptr address = 0;
    auto result = driver_.cuMemAddressReserve(&address, place.size, 0, 0, 0);
    if (result != CUDA_SUCCESS)
        return driver_says(record, fmt::format("allocation {:#x}", place.owner), result);
    result = driver_.cuMemMap(address, place.size, 0, std::bit_cast<CUmemGenericAllocationHandle>(*real), 0);
    if (result != CUDA_SUCCESS) {
        static_cast<void>(driver_.cuMemAddressFree(address, place.size));
        return driver_says(record, fmt::format("allocation {:#x}", place.owner), result);
    }
    mapped_allocation_ = {.to = address, .size = place.size};
    if (result = allow(address, place.size, CU_MEM_ACCESS_FLAGS_PROT_READWRITE); result != CUDA_SUCCESS)
        return driver_says(record, fmt::format("allocation {:#x}", place.owner), result);
    if (auto done = clear(record, place, address); !done)
        return std::unexpected(done.error());
    return address;
}

Expected<void> Restore::array_place(const Record &record, const image::PlaceRecord &place) {
    const bool level = place.kind == std::to_underlying(image::PlaceKind::mipmap_level);
    const auto real =
        session_.objects().real(level ? driver_api::kHandleMipmap : driver_api::kHandleArray, place.owner);
    if (!real || *real == 0 || (level && driver_.cuMipmappedArrayGetLevel == nullptr))
        return record.wrong(fmt::format("{:#x} is no array", place.owner));
    auto array = std::bit_cast<CUarray>(*real);
    if (level) {
        if (place.address > UINT32_MAX)
            return record.wrong(fmt::format("there is no level {}", place.address));
        if (const auto result = driver_.cuMipmappedArrayGetLevel(
                &array, std::bit_cast<CUmipmappedArray>(*real), static_cast<unsigned>(place.address));
            result != CUDA_SUCCESS)
            return driver_says(record, fmt::format("level {} of {:#x}", place.address, place.owner), result);
    }
    const auto shape = ArrayCopier(driver_, array).shape();
    if (!shape)
        return record.wrong(shape.error().message());
    if (shape->size() != place.size)
        return record.wrong(
            fmt::format("array {:#x} has {} bytes here and had {}", place.owner, shape->size(), place.size));
    array_ = ArrayPlace{.array = array, .shape = *shape};
    place_ = Place{.to = 0, .size = place.size};
    return {};
}

void Restore::unmap_allocation() {
    const auto mapped = std::exchange(mapped_allocation_, {});
    if (mapped.size == 0)
        return;
    static_cast<void>(driver_.cuMemUnmap(mapped.to, mapped.size));
    static_cast<void>(driver_.cuMemAddressFree(mapped.to, mapped.size));
}

Expected<void> Restore::place(const Record &record) {
    std::span<const std::byte> tail;
    const auto fixed = image::fixed_of<image::PlaceRecord>(record, &tail);
    if (!fixed)
        return std::unexpected(fixed.error());
    if (fixed->kind == 0 || fixed->kind >= std::to_underlying(image::PlaceKind::end) || fixed->size == 0 ||
        fixed->address + fixed->size < fixed->address)
        return record.wrong("there is no such place");
    if (fixed->name_size != tail.size() || tail.size() > protocol::kMostNameText ||
        text_in(tail).find('\0') != std::string_view::npos)
        return record.wrong("its name is not what it says");
    ++counts_.places;
    unmap_allocation();
    session_.make_current_for(fixed->context);
    array_.reset();
    if (fixed->kind == std::to_underlying(image::PlaceKind::array) ||
        fixed->kind == std::to_underlying(image::PlaceKind::mipmap_level))
        return array_place(record, *fixed);
    const auto to = [&] {
        switch (static_cast<image::PlaceKind>(fixed->kind)) {
        case image::PlaceKind::variable:
            return variable_place(record, *fixed, text_in(tail));
        case image::PlaceKind::allocation:
            return allocation_place(record, *fixed);
        default:
            return memory_place(record, *fixed);
        }
    }();
    if (!to)
        return std::unexpected(to.error());
    place_ = Place{.to = *to, .size = fixed->size};
    return {};
}

Expected<void> Restore::content(const Record &record) {
    std::span<const std::byte> bytes;
    const auto fixed = image::fixed_of<image::ContentRecord>(record, &bytes);
    if (!fixed)
        return std::unexpected(fixed.error());
    if (!place_ || bytes.size() > image::kPiece || fixed->offset > place_->size ||
        bytes.size() > place_->size - fixed->offset)
        return record.wrong("it lies outside of the last place");
    counts_.content_bytes += bytes.size();
    if (array_) {
        if (auto done = ArrayCopier(driver_, array_->array).write(array_->shape, fixed->offset, bytes); !done)
            return record.wrong(done.error().message());
        return {};
    }
    if (auto done = copier_.write(place_->to + fixed->offset, bytes); !done)
        return record.wrong(done.error().message());
    return {};
}

Expected<void> Restore::access(const Record &record) {
    const auto fixed = image::fixed_of<image::AccessRecord>(record);
    if (!fixed)
        return std::unexpected(fixed.error());
    const auto mapping = session_.mapping_at(fixed->address);
    if (mapping != fixed->address || session_.mappings().at(*mapping).size != fixed->size)
        return record.wrong(fmt::format("{:#x}+{:#x} is no mapping", fixed->address, fixed->size));
    constexpr std::array<std::uint64_t, 3> kAllowed{
        CU_MEM_ACCESS_FLAGS_PROT_NONE, CU_MEM_ACCESS_FLAGS_PROT_READ, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    if (std::ranges::find(kAllowed, fixed->flags) == kAllowed.end())
        return record.wrong(fmt::format("there is no access {:#x}", fixed->flags));
    if (const auto result = allow(fixed->address, fixed->size, fixed->flags); result != CUDA_SUCCESS)
        return driver_says(record, fmt::format("the mapping at {:#x}", fixed->address), result);
    return {};
}

Expected<void> Restore::object_number(const Record &record) {
    const auto fixed = image::fixed_of<image::ObjectNumberRecord>(record);
    if (!fixed)
        return std::unexpected(fixed.error());
    const auto kind = kind_of(fixed->object);
    if ((kind != driver_api::kHandleTexture && kind != driver_api::kHandleSurface) || fixed->number == 0)
        return record.wrong(fmt::format("{:#x} is no texture and no surface", fixed->object));
    numbered_ = *fixed;
    return {};
}

// It is recorded when the program goes on: see EventTimes.
Expected<void> Restore::event(const Record &record) {
    std::span<const std::byte> tail;
    const auto fixed = image::fixed_of<image::EventRecord>(record, &tail);
    if (!fixed)
        return std::unexpected(fixed.error());
    const auto real = session_.objects().real(driver_api::kHandleEvent, fixed->event);
    if (!real || *real == 0 || driver_.cuEventRecord == nullptr)
        return record.wrong(fmt::format("{:#x} is no event", fixed->event));
    if (fixed->later > EventTimes::kNeighbours || tail.size() != fixed->later * sizeof(float))
        return record.wrong("its times are not as many as it says");
    EventTimes::SavedTime time{.event = fixed->event,
                               .context = session_.objects().context_of(fixed->event),
                               .before = fixed->before,
                               .later = {}};
    time.later.resize(fixed->later);
    if (!tail.empty())
        std::memcpy(time.later.data(), tail.data(), tail.size());
    if (!std::isfinite(time.before) || time.before < 0 ||
        !std::ranges::all_of(time.later, [](float one) { return std::isfinite(one); }))
        return record.wrong(fmt::format("a time of event {:#x} is none", fixed->event));
    if (!session_.event_times().expect(std::move(time)))
        return record.wrong(fmt::format("event {:#x} is in the image already", fixed->event));
    return {};
}

Expected<void> Restore::blob(const Record &record) {
    const auto fixed = image::fixed_of<image::BlobRecord>(record);
    if (!fixed)
        return std::unexpected(fixed.error());
    if (fixed->size == 0 || fixed->size > protocol::kMostBlob || fixed->held > fixed->size ||
        fixed->held > kMostBlobBytes)
        return record.wrong(
            fmt::format("a blob of {} bytes of which {} are here is not possible", fixed->size, fixed->held));
    const auto name = record.name();
    const auto refuse = [&](const Error &error) {
        return failure("accept", name + " of the device image", error.message(), EPROTO);
    };
    if (auto begun = session_.blobs().begin(fixed->number, fixed->size); !begun)
        return refuse(begun.error());
    std::uint64_t at = 0;
    return reader_.pieces(RecordType::blob_data, fixed->held,
                          [&](std::span<const std::byte> bytes) -> Expected<void> {
                              if (auto done = session_.blobs().append(fixed->number, at, bytes); !done)
                                  return refuse(done.error());
                              at += bytes.size();
                              return {};
                          });
}

Expected<void> Restore::communicator(const Record &record) {
    const auto fixed = image::fixed_of<image::CommunicatorRecord>(record);
    if (!fixed)
        return std::unexpected(fixed.error());
    ++counts_.communicators;
    session_.make_current_for(fixed->context);
    std::string text;
    const auto result = session_.communicators().restore({.number = fixed->number,
                                                          .context = fixed->context,
                                                          .place = {.key = fixed->key,
                                                                    .rank = fixed->rank,
                                                                    .size = fixed->size,
                                                                    .completed = fixed->completed}},
                                                         text);
    if (!text.empty())
        return record.wrong(text);
    if (result != CUDA_SUCCESS)
        return driver_says(record, fmt::format("communicator {}", fixed->number), result);
    return {};
}

// The session that a client record speaks of.
Expected<Restored> begin_client(const Record &record, const BackEnd &back_end, std::uint64_t window_size,
                                const MakeSession &make, std::span<const Restored> earlier) {
    const auto fixed = image::fixed_of<image::ClientRecord>(record);
    if (!fixed)
        return std::unexpected(fixed.error());
    const auto &device = back_end.identity();
    auto name = fixed->device_name;
    name.back() = '\0';
    if (std::string_view(name.data()) != std::string_view(device.name.data()) ||
        fixed->compute_major != device.compute_major || fixed->compute_minor != device.compute_minor)
        return record.wrong(fmt::format("it was saved on a {} ({}.{}), this is a {} ({}.{})", name.data(),
                                        fixed->compute_major, fixed->compute_minor, device.name.data(),
                                        device.compute_major, device.compute_minor));
    if (fixed->device_ordinal != device.ordinal)
        return record.wrong(
            fmt::format("it was saved on device {} of its driver, this is device {}: start this device "
                        "proxy with CUDA_VISIBLE_DEVICES so that it has the same --device",
                        fixed->device_ordinal, device.ordinal));
    if (fixed->window_size != window_size)
        return record.wrong(fmt::format("its window has {:#x} bytes, here windows have {:#x} (--window-size)",
                                        fixed->window_size, window_size));
    if (!has_slice(window_size, fixed->devices, fixed->key.ordinal))
        return record.wrong(
            fmt::format("it is of device {} of {}: a window of {:#x} bytes has no slice for it",
                        fixed->key.ordinal, fixed->devices, window_size));
    if (fixed->noted < 0 || fixed->noted > CUDA_ERROR_UNKNOWN)
        return record.wrong(fmt::format("its failure {} is none that a driver has", fixed->noted));
    const channel::Geometry geometry{.ring_size = fixed->geometry[0],
                                     .record_limit = fixed->geometry[1],
                                     .slots = fixed->geometry[2],
                                     .inline_size = fixed->geometry[3],
                                     .pieces = fixed->geometry[4],
                                     .piece_size = fixed->geometry[5]};
    if (auto good = channel::check(geometry); !good)
        return record.wrong(good.error().message());
    const channel::ClientKey client{.process = fixed->key.process, .ordinal = fixed->key.ordinal};
    if (std::ranges::contains(earlier, client, &Restored::client))
        return record.wrong("this client is in the image already");
    auto unread = channel::ServerEnd::create(geometry);
    if (!unread)
        return record.wrong(unread.error().message());
    auto session = make({.client = client,
                         .devices = fixed->devices,
                         .device = {.number = fixed->node_device[0], .of = fixed->node_device[1]},
                         .window = fixed->window},
                        geometry);
    if (!session)
        return record.wrong(session.error().message());
    (*session)->repeat_over(std::move(*unread));
    (*session)->note(static_cast<CUresult>(fixed->noted));
    (*session)->objects().invent_from(std::min<std::uint64_t>(fixed->names, std::uint64_t{1} << 30));
    return Restored{.client = client, .session = std::move(*session), .pid = fixed->pid, .content_bytes = 0};
}

} // namespace

Expected<void> restore_sessions(image::Reader &reader, const OpenDevice &device, std::uint64_t window_size,
                                const MakeSession &make, std::vector<Restored> &restored) {
    auto first = reader.next(RecordType::stream);
    if (!first)
        return propagate(first);
    const auto stream = image::fixed_of<image::StreamRecord>(*first);
    if (!stream)
        return std::unexpected(stream.error());
    if (stream->magic != image::kMagic)
        return first->wrong("this is no device image");
    if (stream->version != image::kVersion)
        return first->wrong(fmt::format("it is of version {}; this device proxy reads version {}",
                                        stream->version, image::kVersion));
    if (stream->clients > kMostClients)
        return first->wrong(fmt::format("{} clients are too many", stream->clients));
    for (std::uint32_t client = 0; client < stream->clients; ++client) {
        auto record = reader.next(RecordType::client);
        if (!record)
            return propagate(record);
        auto opened = device();
        if (!opened)
            return propagate(opened);
        const BackEnd &back_end = **opened;
        auto begun = begin_client(*record, back_end, window_size, make, restored);
        if (!begun)
            return propagate(begun);
        restored.push_back(std::move(*begun));
        const auto &session = *restored.back().session;
        const MappingsOf its(session.place().mappings());
        session.prepare_thread();
        if (auto done = Restore(reader, back_end, restored.back()).run(); !done)
            return done;
    }
    auto last = reader.next(RecordType::end);
    if (!last)
        return propagate(last);
    const auto end = image::fixed_of<image::EndRecord>(*last);
    if (!end)
        return std::unexpected(end.error());
    if (end->records != reader.records())
        return last->wrong(
            fmt::format("it counts {} records, {} were there", end->records, reader.records()));
    return {};
}

} // namespace singularity::proxyd
