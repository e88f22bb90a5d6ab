// SPDX-License-Identifier: GPL-2.0-or-later
#include "message_kinds.hpp"

namespace singularity::driver_api {

int for_each_request(const std::function<void(Message &)> &use) {
    int count = 0;
#define ONE(Name)                                                                                            \
    {                                                                                                        \
        OfRequest<Name##Request> message(decode_##Name##Request);                                            \
        use(message);                                                                                        \
        ++count;                                                                                             \
    }
    SINGULARITY_DRIVER_API_REQUESTS(ONE);
#undef ONE
    return count;
}

} // namespace singularity::driver_api
