// SPDX-License-Identifier: GPL-2.0-or-later
// A libcuda.so.1 that has one device, or none before it is initialised: the test says which.
#include <cstring>

#define EXPORTED extern "C" [[gnu::visibility("default")]]

namespace {
const unsigned char *uuid_of_device = nullptr;
} // namespace

EXPORTED void fake_device(const unsigned char *uuid) { uuid_of_device = uuid; }

EXPORTED int cuDeviceGetUuid(unsigned char *uuid, int device) {
    if (uuid_of_device == nullptr)
        return 3; // CUDA_ERROR_NOT_INITIALIZED
    if (device != 0)
        return 101;
    std::memcpy(uuid, uuid_of_device, 16);
    return 0;
}
