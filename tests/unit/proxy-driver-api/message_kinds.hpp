// SPDX-License-Identifier: GPL-2.0-or-later
// The generated messages, each as a Message: what has to be compiled once for every kind of them.
#pragma once

#include "cmocka.hpp"
#include "driver_api/messages.hpp"
#include "proxy/driver-api/api.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace singularity::driver_api {

using test::fail;

inline constexpr std::uint64_t kSmall = 9; // lengths above this only by chance
inline constexpr std::uint64_t kLargest = 1 << 16;

using Random = std::mt19937_64;

// Random values that fit together. Narrow ones always do; wide ones may not (a length that overflows): then
// the request is filled again.
class Fill {
  public:
    Fill(Random &random, bool wide) : random_(random), wide_(wide) {}

    template <class T>
    void value(std::string_view /*name*/, T &field) {
        const auto bits = random_();
        if constexpr (std::is_floating_point_v<T>)
            field = static_cast<T>(bits);
        else
            // tensorRank - 2 is the largest thing that is taken away from a length.
            field = wide_ ? static_cast<T>(bits) : static_cast<T>(2 + bits % kSmall);
    }
    void handle(std::string_view /*name*/, std::string_view kind, std::uint64_t &field, bool /*is_new*/) {
        if (kind.empty())
            fail("a handle of no kind");
        field = random_() | 1;
    }
    template <std::size_t N>
    void object(std::string_view /*name*/, std::array<std::byte, N> &field) {
        scatter(field);
    }
    void wanted(std::string_view /*name*/, bool &field) { field = (random_() & 1) != 0; }
    void range(std::string_view /*name*/, HostRange &field, Length length) {
        failed_ |= !length.valid();
        field = {.address = random_() >> 1, .size = length.value()};
        failed_ |= !(Length(field.address) + Length(field.size)).valid();
    }
    void string(std::string_view /*name*/, View &field, bool nullable) {
        if (nullable && (random_() & 1) != 0) {
            field = {};
            return;
        }
        auto &bytes = memory_.emplace_back(random_() % 40 + 1);
        for (auto &byte : bytes)
            byte = static_cast<std::byte>(1 + random_() % 255);
        bytes.back() = std::byte{0};
        field = {.bytes = bytes, .present = true};
    }
    void buffer(std::string_view /*name*/, View &field, Length length, bool nullable, bool nulls) {
        if (nullable && (random_() & 1) != 0) {
            field = {};
            return;
        }
        if (!length.valid() || length.value() > kLargest) {
            failed_ = true;
            return;
        }
        field = {.bytes = take(length.value(), nulls), .present = true};
    }
    void output(std::string_view /*name*/, View &field, const Output &output, bool nulls) {
        field = {};
        if (!output.wanted)
            return;
        std::uint64_t size = output.capacity.value();
        if (!output.exact && size > 0)
            size = random_() % (std::min<std::uint64_t>(size, 256) / output.element + 1) * output.element;
        field = {.bytes = take(size, nulls), .present = true};
    }

    [[nodiscard]] bool failed() const { return failed_; }

  private:
    void scatter(std::span<std::byte> bytes) {
        for (auto &byte : bytes)
            byte = static_cast<std::byte>(random_());
    }
    std::span<const std::byte> take(std::uint64_t size, bool nulls) {
        auto &bytes = memory_.emplace_back(size);
        if (nulls)
            return bytes;
        if (wide_)
            scatter(bytes);
        else if (size > 0)
            bytes.front() =
                static_cast<std::byte>(random_() % kSmall); // a count that others hang on stays small
        return bytes;
    }

    Random &random_;
    bool wide_;
    bool failed_ = false;
    std::deque<std::vector<std::byte>> memory_;
};

// All that a message says, by value.
class Digest {
  public:
    template <class T>
    void value(std::string_view name, T &field) {
        note(name, std::as_bytes(std::span(&field, 1)));
    }
    void handle(std::string_view name, std::string_view /*kind*/, std::uint64_t &field, bool /*is_new*/) {
        value(name, field);
    }
    template <std::size_t N>
    void object(std::string_view name, std::array<std::byte, N> &field) {
        note(name, field);
    }
    void wanted(std::string_view name, bool &field) { value(name, field); }
    void range(std::string_view name, HostRange &field, Length /*length*/) {
        value(name, field.address);
        value(name, field.size);
    }
    void string(std::string_view name, View &field, bool /*nullable*/) { view(name, field); }
    void buffer(std::string_view name, View &field, Length /*length*/, bool /*nullable*/, bool /*nulls*/) {
        view(name, field);
    }
    void output(std::string_view name, View &field, const Output & /*output*/, bool /*nulls*/) {
        view(name, field);
    }

    [[nodiscard]] const std::string &text() const { return text_; }

  private:
    void view(std::string_view name, View &field) {
        value(name, field.present);
        note(name, field.bytes);
    }
    void note(std::string_view name, std::span<const std::byte> bytes) {
        text_.append(name).append("=");
        for (const auto byte : bytes)
            text_.push_back(static_cast<char>(byte));
        text_.push_back(';');
    }

    std::string text_;
};

// A kind of message. What every kind is compiled for is here, and as little as can be; the tests themselves
// are below, once.
class Message {
  public:
    Message() = default;
    Message(const Message &) = delete;
    Message &operator=(const Message &) = delete;
    virtual ~Message() = default;

    // Random values; a word of why not, if they do not fit together.
    virtual Expected<void> fill(Random &random, bool wide) = 0;
    [[nodiscard]] virtual std::string text() const = 0;
    virtual Expected<std::size_t> write(std::span<std::byte> room) const = 0;
    // What the bytes say, if they are such a message; it is written into `again`, and how large it was there.
    struct Read {
        std::string text;
        Expected<std::size_t> rewritten;
    };
    virtual Expected<Read> read(std::span<const std::byte> bytes, std::span<std::byte> again) const = 0;
};

template <class Request>
class OfRequest : public Message {
  public:
    using Decode = Expected<Request> (*)(std::span<const std::byte>);
    explicit OfRequest(Decode decode) : decode_(decode) {}

    Expected<void> fill(Random &random, bool wide) override {
        values_.emplace(random, wide);
        request_ = {};
        if ((random() & 1) != 0)
            request_.api = api_info(request_.api).per_thread;
        visit(request_, *values_);
        if (values_->failed())
            return failure("fill", "a request", "a length that overflows");
        return check(request_);
    }
    [[nodiscard]] std::string text() const override { return text_of(request_); }
    Expected<std::size_t> write(std::span<std::byte> room) const override { return encode(request_, room); }
    Expected<Read> read(std::span<const std::byte> bytes, std::span<std::byte> again) const override {
        auto decoded = decode_(bytes);
        if (!decoded)
            return std::unexpected(decoded.error());
        return Read{.text = text_of(*decoded), .rewritten = encode(*decoded, again)};
    }

  protected:
    [[nodiscard]] const Request &request() const { return request_; }

  private:
    static std::string text_of(Request request) {
        Digest digest;
        visit(request, digest);
        return std::to_string(static_cast<unsigned>(request.api)) + ' ' + digest.text();
    }

    Decode decode_;
    Request request_;
    std::optional<Fill> values_;
};
template <class Request, class Reply>
class OfReply final : public OfRequest<Request> {
  public:
    using Decode = Expected<Reply> (*)(const Request &, std::span<const std::byte>);
    OfReply(OfRequest<Request>::Decode decode_request, Decode decode)
        : OfRequest<Request>(decode_request), decode_(decode) {}

    // A request that is good, and a reply to it.
    Expected<void> fill(Random &random, bool wide) override {
        if (!OfRequest<Request>::fill(random, wide) && !OfRequest<Request>::fill(random, false))
            fail("values that fit together were refused");
        const auto room = output_size(this->request());
        if (!room)
            return std::unexpected(room.error());
        values_.emplace(random, true);
        reply_ = {};
        visit(this->request(), reply_, *values_);
        if ((random() & 1) != 0)
            reply_.driver_result = 0;
        return *room > kLargest ? check(this->request(), reply_) : Expected<void>();
    }
    [[nodiscard]] std::string text() const override { return text_of(reply_); }
    Expected<std::size_t> write(std::span<std::byte> room) const override {
        return encode(this->request(), reply_, room);
    }
    Expected<Message::Read> read(std::span<const std::byte> bytes,
                                 std::span<std::byte> again) const override {
        auto decoded = decode_(this->request(), bytes);
        if (!decoded)
            return std::unexpected(decoded.error());
        return Message::Read{.text = text_of(*decoded),
                             .rewritten = encode(this->request(), *decoded, again)};
    }

  private:
    std::string text_of(Reply reply) const {
        Digest digest;
        visit(this->request(), reply, digest);
        return digest.text();
    }

    Decode decode_;
    Reply reply_;
    std::optional<Fill> values_;
};

// Gives one of each kind to the function; says how many there are.
int for_each_request(const std::function<void(Message &)> &use);
int for_each_reply(const std::function<void(Message &)> &use);

} // namespace singularity::driver_api
