// SPDX-License-Identifier: GPL-2.0-or-later
#include "credential.hpp"

#include <cstdlib>
#include <memory>

#include <fmt/format.h>
#include <munge.h>
#include <unistd.h>

namespace singularity::peers {

namespace {

struct Destroy {
    void operator()(munge_ctx_t context) const { munge_ctx_destroy(context); }
};
using Context = std::unique_ptr<std::remove_pointer_t<munge_ctx_t>, Destroy>;

struct Free {
    void operator()(void *memory) const { std::free(memory); } // libmunge's, by malloc
};

std::unexpected<Error> refuse(std::string doing, munge_ctx_t context, munge_err_t code, int number) {
    const char *const words = context != nullptr ? munge_ctx_strerror(context) : nullptr;
    return failure(std::move(doing), "a munge credential", words != nullptr ? words : munge_strerror(code),
                   number);
}

Expected<Context> open_context(const std::filesystem::path &socket) {
    Context context(munge_ctx_create());
    if (!context)
        return failure("use", "munge", "there is no memory", ENOMEM);
    if (const auto code = munge_ctx_set(context.get(), MUNGE_OPT_SOCKET, socket.c_str());
        code != EMUNGE_SUCCESS)
        return refuse("prepare", context.get(), code, EINVAL);
    return context;
}

Expected<std::string> encode(const Context &context, const std::string &payload) {
    char *text = nullptr;
    const auto code = munge_encode(&text, context.get(), payload.data(), static_cast<int>(payload.size()));
    const std::unique_ptr<char, Free> owner(text);
    if (code != EMUNGE_SUCCESS)
        return refuse("make", context.get(), code, EIO);
    return std::string(text);
}

struct Content {
    std::string payload;
    uid_t maker = 0;
};
Expected<Content> decode(const Context &context, const std::string &credential) {
    void *payload = nullptr;
    int size = 0;
    uid_t uid = 0;
    gid_t gid = 0;
    const auto code = munge_decode(credential.c_str(), context.get(), &payload, &size, &uid, &gid);
    // Of an expired or replayed one, too, the content is given.
    const std::unique_ptr<void, Free> owner(payload);
    if (code != EMUNGE_SUCCESS)
        return refuse("believe", context.get(), code, EKEYREJECTED);
    Content out{.payload = {}, .maker = uid};
    if (payload != nullptr && size > 0)
        out.payload.assign(static_cast<const char *>(payload), static_cast<std::size_t>(size));
    return out;
}

} // namespace

Expected<std::string> make_credential(const wire::Pledge &pledge, const std::filesystem::path &socket) {
    auto context = open_context(socket);
    if (!context)
        return propagate(context);
    constexpr uid_t kRoot = 0;
    // Whatever munged does by default.
    for (const auto code : {munge_ctx_set(context->get(), MUNGE_OPT_CIPHER_TYPE, MUNGE_CIPHER_AES256),
                            munge_ctx_set(context->get(), MUNGE_OPT_MAC_TYPE, MUNGE_MAC_SHA256),
                            munge_ctx_set(context->get(), MUNGE_OPT_UID_RESTRICTION, kRoot),
                            munge_ctx_set(context->get(), MUNGE_OPT_TTL, kCredentialSeconds)})
        if (code != EMUNGE_SUCCESS)
            return refuse("prepare", context->get(), code, EINVAL);
    return encode(*context, pledge.SerializeAsString());
}

Expected<wire::Pledge> read_credential(const std::string &credential, const std::filesystem::path &socket) {
    auto context = open_context(socket);
    if (!context)
        return propagate(context);
    auto content = decode(*context, credential);
    if (!content)
        return propagate(content);
    if (content->maker != 0)
        return failure("believe", "a munge credential",
                       fmt::format("uid {} has made it, not root", content->maker), EPERM);
    wire::Pledge pledge;
    if (content->payload.empty() || !pledge.ParseFromString(content->payload))
        return failure("believe", "a munge credential", "there is no pledge in it", EBADMSG);
    return pledge;
}

Expected<void> try_munge(const std::filesystem::path &socket) {
    auto context = open_context(socket);
    if (!context)
        return propagate(context);
    auto credential = encode(*context, {});
    if (!credential)
        return propagate(credential);
    auto content = decode(*context, *credential);
    if (!content)
        return propagate(content);
    if (content->maker != geteuid())
        return failure("believe", "a munge credential",
                       fmt::format("it takes uid {} for uid {}", geteuid(), content->maker), EPERM);
    return {};
}

} // namespace singularity::peers
