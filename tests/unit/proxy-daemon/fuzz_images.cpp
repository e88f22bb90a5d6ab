// SPDX-License-Identifier: GPL-2.0-or-later
// Parts of the input become the records of a device image, with heads, numbers and check sums that are right
// unless the input says otherwise; sessions are restored from it whose driver does nothing and always
// succeeds. Inputs begin as images of sessions that have taken what fuzz_inputs.hpp has. Nothing may crash,
// hang, or take more memory than the image has bytes.
#include "common/log.hpp"
#include "fuzz/subject.hpp"
#include "fuzz_inputs.hpp"
#include "fuzz_session.hpp"
#include "proxy/image/reader.hpp"
#include "proxy/image/writer.hpp"
#include "proxy/protocol/all.hpp"
#include "restore.hpp"
#include "save.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

namespace singularity::test {

namespace {

using image::RecordType;

// Of a part: its type is its slot. Besides kLies, with which the head has the size that the payload begins
// with:
constexpr std::uint8_t kWrongCheck = 4;
constexpr std::uint8_t kWrongIndex = 8;
constexpr std::size_t kMostSessions = 8;
constexpr std::size_t kLargestSegment = std::size_t{16} << 20;

struct Reached {
    std::set<RecordType> records;
    std::uint64_t whole = 0;    // images that were restored
    std::uint64_t finished = 0; // and then carried out the calls that wait for the client
};
Reached &reached() {
    static Reached instance;
    return instance;
}

// Most of what is tried is refused.
void be_quiet() {
    log::set_sink([](log::Level, std::string_view) {});
}

Expected<void> go_on(std::uint64_t /*bytes*/) { return {}; }

UniqueFd memory_file() {
    UniqueFd file(memfd_create("fuzz-image", MFD_CLOEXEC));
    if (!file)
        std::abort();
    return file;
}

template <class Fixed>
std::span<const std::uint8_t> bytes_in(const Fixed &fixed) {
    return {static_cast<const std::uint8_t *>(static_cast<const void *>(&fixed)), sizeof(fixed)};
}

// What the head and the check sum say of a part that is the index-th.
Bytes record_of(const Part &part, std::uint64_t index) {
    image::RecordHead head{.type = part.slot,
                           .index = index + ((part.flags & kWrongIndex) != 0 ? 1 : 0),
                           .size = part.message.size()};
    if ((part.flags & kLies) != 0 && part.message.size() >= sizeof(head.size))
        std::memcpy(&head.size, part.message.data(), sizeof(head.size));
    head.check = check_of(head, std::as_bytes(std::span(part.message)));
    if ((part.flags & kWrongCheck) != 0)
        ++head.check;
    Bytes out;
    const auto bytes = bytes_in(head);
    out.insert(out.end(), bytes.begin(), bytes.end());
    out.insert(out.end(), part.message.begin(), part.message.end());
    return out;
}

std::vector<Part> parts_in(const UniqueFd &file) {
    std::vector<Part> parts;
    if (lseek(file.get(), 0, SEEK_SET) != 0)
        std::abort();
    image::Reader reader(file.get(), Deadline::after(std::chrono::seconds(60)), go_on);
    for (;;) {
        const auto record = reader.next();
        if (!record)
            return parts;
        const auto *const first =
            static_cast<const std::uint8_t *>(static_cast<const void *>(record->payload.data()));
        parts.push_back({.slot = static_cast<std::uint8_t>(record->type),
                         .message = Bytes(first, first + record->payload.size())});
    }
}

// Memory is full of something, so that there is content to save; but of no more than a part can have.
CUresult read_something(void *to, CUdeviceptr /*from*/, std::size_t size, CUstream /*stream*/) {
    constexpr std::size_t kLittle = std::size_t{32} << 10;
    constexpr int kSomething = 0x5a;
    std::memset(to, size <= kLittle ? kSomething : 0, size);
    return CUDA_SUCCESS;
}

// The image of a session that has taken these; none if it has not.
std::optional<std::vector<Part>> saved_after(const std::vector<Part> &taken) {
    static const auto back_end = [] {
        auto driver = fuzz_driver();
        driver.cuMemcpyDtoHAsync_v2 = &read_something;
        return proxyd::BackEnd::with(driver);
    }();
    const auto fuzzed = FuzzSession::begin(*back_end);
    if (fuzzed == nullptr)
        return std::nullopt;
    for (const auto &part : taken)
        if (fuzzed->take(part).over)
            return std::nullopt;
    const auto file = memory_file();
    image::Writer writer(file.get(), Deadline::after(std::chrono::seconds(60)), go_on);
    // As the client says: some of its slab is in use.
    const proxyd::PausedClient client{.said = {}, .ranges = {{.address = kFuzzWindow, .size = 3 * 4096}}};
    const bool saved = drain(fuzzed->session(), Deadline::after(std::chrono::seconds(60))) &&
                       writer.put(RecordType::stream, image::StreamRecord{.clients = 1}) &&
                       save_session(fuzzed->session(), client, writer) &&
                       writer.put(RecordType::end, image::EndRecord{.records = writer.records() + 1}) &&
                       writer.flush();
    fuzzed->session().give_back();
    return saved ? std::optional(parts_in(file)) : std::nullopt;
}

std::vector<std::vector<Part>> all_good() {
    be_quiet();
    std::vector<std::vector<Part>> found;
    std::vector<Part> together;
    constexpr std::size_t kEmpty = 4; // records of one that has nothing in it
    for (const auto &row : seed_inputs()) {
        // Also what is there in between, and gone again at the row's end.
        for (std::size_t size = 1; size <= row.size(); ++size)
            if (auto image = saved_after({row.begin(), row.begin() + static_cast<std::ptrdiff_t>(size)});
                image && image->size() > kEmpty)
                found.push_back(std::move(*image));
        auto more = together;
        more.insert(more.end(), row.begin(), row.end());
        if (saved_after(more))
            together = std::move(more);
    }
    if (auto image = saved_after(together))
        found.push_back(std::move(*image));
    return found;
}

template <class Fixed>
std::optional<Fixed> fixed_in(const Part &part) {
    Fixed fixed;
    if (part.message.size() < sizeof(fixed))
        return std::nullopt;
    std::memcpy(&fixed, part.message.data(), sizeof(fixed));
    return fixed;
}

template <class Fixed>
void put(Part &part, const Fixed &fixed) {
    const auto bytes = bytes_in(fixed);
    part.message.assign(bytes.begin(), bytes.end());
}

// The numbers that count what is in front of them, as they should be.
void count_again(std::vector<Part> &parts) {
    image::ClientEndRecord counts;
    std::uint32_t clients = 0;
    std::uint64_t records = 0;
    for (auto &part : parts) {
        ++records;
        switch (static_cast<RecordType>(part.slot)) {
        case RecordType::client:
            counts = {};
            ++clients;
            break;
        case RecordType::call:
            ++counts.calls;
            break;
        case RecordType::slab:
            ++counts.slabs;
            break;
        case RecordType::place:
            ++counts.places;
            break;
        case RecordType::communicator:
            ++counts.communicators;
            break;
        case RecordType::content:
            counts.content_bytes +=
                part.message.size() - std::min(part.message.size(), sizeof(image::ContentRecord));
            break;
        case RecordType::client_end:
            put(part, counts);
            break;
        case RecordType::end:
            put(part, image::EndRecord{.records = records});
            break;
        default:
            break;
        }
    }
    if (!parts.empty() && static_cast<RecordType>(parts.front().slot) == RecordType::stream)
        if (auto stream = fixed_in<image::StreamRecord>(parts.front())) {
            stream->clients = clients;
            put(parts.front(), *stream);
        }
}

class ImageChanger {
  public:
    explicit ImageChanger(std::uint64_t seed) : random_(seed) {}

    std::vector<Part> input() {
        auto parts = any_image();
        for (auto changes = below(4); changes > 0; --changes)
            change(parts);
        if (below(4) != 0)
            count_again(parts);
        return parts;
    }
    void change(std::vector<Part> &parts) {
        const auto what = below(12);
        if (parts.empty() || what == 0)
            return add(parts);
        const auto at = parts.begin() + static_cast<std::ptrdiff_t>(below(parts.size()));
        switch (what) {
        case 1:
            parts.erase(at);
            break;
        case 2:
            parts.insert(at, Part(*at));
            break;
        case 3:
            std::swap(*at, parts[below(parts.size())]);
            break;
        case 4:
            at->message.resize(below(at->message.size() + 64));
            break;
        case 5:
            change_head(*at);
            break;
        case 6:
            count_again(parts);
            break;
        default:
            change_number(at->message);
            break;
        }
    }

  private:
    std::uint64_t below(std::uint64_t end) { return end == 0 ? 0 : random_() % end; }
    std::vector<Part> any_image() {
        return good_inputs().empty() ? std::vector<Part>() : good_inputs()[below(good_inputs().size())];
    }
    // A record, or all of a client, of another image.
    void add(std::vector<Part> &parts) {
        const auto other = any_image();
        if (other.empty())
            return;
        const auto at = parts.begin() + static_cast<std::ptrdiff_t>(below(parts.size() + 1));
        if (below(2) == 0)
            parts.insert(at, other[below(other.size())]);
        else
            parts.insert(parts.empty() ? at : parts.end() - 1, other.begin() + 1, other.end() - 1);
    }
    void change_head(Part &part) {
        constexpr std::array kFlags{kLies, kWrongCheck, kWrongIndex};
        if (const auto which = below(8); which < kFlags.size())
            part.flags ^= kFlags.at(which);
        else
            part.slot = static_cast<std::uint8_t>(below(18));
    }
    // A number that means something, at a place where one could be; or any byte.
    void change_number(Bytes &message) {
        if (message.size() < sizeof(std::uint64_t) || below(8) == 0) {
            if (!message.empty())
                message[below(message.size())] = static_cast<std::uint8_t>(random_());
            return;
        }
        const auto kind = static_cast<unsigned>(1 + below(driver_api::kHandleKinds));
        const std::array<std::uint64_t, 12> numbers{0,
                                                    1,
                                                    3,
                                                    ~std::uint64_t{0},
                                                    std::uint64_t{1} << 63,
                                                    below(300),
                                                    protocol::kSlabUnit,
                                                    kFuzzWindow,
                                                    kFuzzSlice + below(64) * protocol::kSlabUnit,
                                                    fuzz_handle(kind, 1),
                                                    fuzz_handle(kind, 100 + below(3)),
                                                    random_()};
        const auto value = numbers[below(numbers.size())];
        const std::size_t unit = below(3) == 0 ? sizeof(std::uint32_t) : sizeof(std::uint64_t);
        std::memcpy(message.data() + below(message.size() / unit) * unit, &value, unit);
    }

    std::mt19937_64 random_;
};

Expected<std::shared_ptr<proxyd::Session>> make_session(const proxyd::BackEnd &back_end,
                                                        const proxyd::ClientPlace &client,
                                                        const channel::Geometry &geometry) {
    const auto refuse = [](const char *why) { return failure("restore", "a session", why); };
    if (client.window != kFuzzWindow)
        return refuse("its window is none of this fuzzer");
    // It may be large; whoever has it has it in his own memory.
    if (segment_size(geometry) > kLargestSegment)
        return refuse("its channel is too large for a fuzzer");
    auto end = channel::ServerEnd::create(geometry);
    std::array<int, 2> sockets{-1, -1};
    if (!end || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets.data()) != 0)
        return refuse("no channel");
    const UniqueFd other(sockets[1]);
    auto link = channel::Link::adopt(UniqueFd(sockets[0]));
    if (!link)
        return propagate(link);
    proxyd::SessionPlace place;
    static_cast<proxyd::ClientPlace &>(place) = client;
    place.number = 1;
    place.window_size = kFuzzWindowSize;
    auto session =
        std::make_shared<proxyd::Session>(place, back_end, nullptr, std::move(*end), std::move(*link), [] {});
    session->mailbox().close();
    session->communicators().use({.engine = fuzz_engine(), .device = nullptr, .nccl = nullptr});
    add_objects(*session);
    return session;
}

} // namespace

void run_input(std::span<const std::uint8_t> input) {
    be_quiet();
    static const auto back_end = proxyd::BackEnd::with(fuzz_driver());
    const auto parts = parts_of(input);
    const auto file = memory_file();
    std::uint64_t index = 0;
    Bytes whole;
    for (const auto &part : parts) {
        const auto record = record_of(part, index++);
        whole.insert(whole.end(), record.begin(), record.end());
    }
    if (pwrite(file.get(), whole.data(), whole.size(), 0) != static_cast<ssize_t>(whole.size()))
        return;
    image::Reader reader(file.get(), Deadline::after(std::chrono::seconds(60)), go_on);
    std::vector<proxyd::Restored> restored;
    const proxyd::MakeSession make =
        [&](const proxyd::ClientPlace &client,
            const channel::Geometry &geometry) -> Expected<std::shared_ptr<proxyd::Session>> {
        if (restored.size() >= kMostSessions)
            return failure("restore", "a session", "there are too many");
        return make_session(*back_end, client, geometry);
    };
    const auto done = restore_sessions(
        reader, []() -> Expected<const proxyd::BackEnd *> { return back_end.get(); }, kFuzzWindowSize, make,
        restored);
    for (std::uint64_t at = 0; at < reader.records() && at < parts.size(); ++at)
        if (done || at + 1 < reader.records())
            reached().records.insert(static_cast<RecordType>(parts[at].slot));
    reached().whole += done ? 1 : 0;
    for (const auto &one : restored) {
        if (done && one.session->finish_restore() == CUDA_SUCCESS)
            ++reached().finished;
        one.session->give_back();
    }
}

const std::vector<std::vector<Part>> &good_inputs() {
    static const auto kGood = all_good();
    return kGood;
}

std::vector<Part> made_input(std::uint64_t seed) { return ImageChanger(seed).input(); }

void change(std::vector<Part> &parts, std::uint64_t seed, unsigned changes) {
    ImageChanger changer(seed);
    for (; changes > 0; --changes)
        changer.change(parts);
}

std::string reached_text() {
    const auto &known = reached();
    std::string missing;
    constexpr auto kEnd = std::to_underlying(RecordType::object_number);
    for (auto type = std::to_underlying(RecordType::stream); type <= kEnd; ++type)
        if (!known.records.contains(static_cast<RecordType>(type)))
            missing += fmt::format(" {}", record_name(static_cast<RecordType>(type)));
    return fmt::format("reached: {} of {} records; {} images restored, {} clients to their end; not:{}",
                       known.records.size(), kEnd, known.whole, known.finished,
                       missing.empty() ? " nothing" : missing);
}

} // namespace singularity::test
