// SPDX-License-Identifier: GPL-2.0-or-later
#include "message_kinds.hpp"

namespace singularity::driver_api {

int for_each_reply(const std::function<void(Message &)> &use) {
    int count = 0;
#define ONE(Name)                                                                                            \
    {                                                                                                        \
        OfReply<Name##Request, Name##Reply> message(decode_##Name##Request, decode_##Name##Reply);           \
        use(message);                                                                                        \
        ++count;                                                                                             \
    }
    SINGULARITY_DRIVER_API_REPLIES(ONE);
#undef ONE
    return count;
}

} // namespace singularity::driver_api
