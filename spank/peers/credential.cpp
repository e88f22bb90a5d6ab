// SPDX-License-Identifier: GPL-2.0-or-later
#include "credential.hpp"

#include <cstdlib>
#include <memory>

#include <fmt/format.h>
#include <munge.h>

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

} // namespace

Expected<std::string> make_credential(const wire::Pledge &pledge, const std::filesystem::path &socket) {
    auto context = open_context(socket);
    if (!context)
        return propagate(context);
    constexpr uid_t kRoot = 0;
    for (const auto code : {munge_ctx_set(context->get(), MUNGE_OPT_UID_RESTRICTION, kRoot),
                            munge_ctx_set(context->get(), MUNGE_OPT_TTL, kCredentialSeconds)})
        if (code != EMUNGE_SUCCESS)
            return refuse("prepare", context->get(), code, EINVAL);
    const std::string payload = pledge.SerializeAsString();
    char *text = nullptr;
    const auto code = munge_encode(&text, context->get(), payload.data(), static_cast<int>(payload.size()));
    const std::unique_ptr<char, Free> owner(text);
    if (code != EMUNGE_SUCCESS)
        return refuse("make", context->get(), code, EIO);
    return std::string(text);
}

Expected<wire::Pledge> read_credential(const std::string &credential, const std::filesystem::path &socket) {
    auto context = open_context(socket);
    if (!context)
        return propagate(context);
    void *payload = nullptr;
    int size = 0;
    uid_t uid = 0;
    gid_t gid = 0;
    const auto code = munge_decode(credential.c_str(), context->get(), &payload, &size, &uid, &gid);
    // Of an expired or replayed one, too, the content is given.
    const std::unique_ptr<void, Free> owner(payload);
    if (code != EMUNGE_SUCCESS)
        return refuse("believe", context->get(), code, EKEYREJECTED);
    if (uid != 0)
        return failure("believe", "a munge credential", fmt::format("uid {} has made it, not root", uid),
                       EPERM);
    wire::Pledge pledge;
    if (size <= 0 || !pledge.ParseFromArray(payload, size))
        return failure("believe", "a munge credential", "there is no pledge in it", EBADMSG);
    return pledge;
}

} // namespace singularity::peers
