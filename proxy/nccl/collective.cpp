// SPDX-License-Identifier: GPL-2.0-or-later
#include "collective.hpp"

#include "group.hpp"
#include "membership.hpp"
#include "proxy/libcuda/cuda.hpp"

#include <cstdint>
#include <cstring>
#include <limits>

namespace singularity::nccl {

namespace {

// In the order, and with the words, of NCCL.
Result check(const Communicator &communicator, const Call &call) {
    const char *const name = rules_of(call.kind).name;
    if (call.peer < 0 || static_cast<std::uint32_t>(call.peer) >= communicator.size)
        return refuse(Result::invalid_argument, "{} : invalid root {} (root should be in the 0..{} range)",
                      name, call.peer, communicator.size);
    if (!is_known(call.type))
        return refuse(Result::invalid_argument, "{} : invalid type {}", name, static_cast<int>(call.type));
    if (call.reduction < Reduction::sum)
        return refuse(Result::invalid_argument, "{} : invalid reduction operation {}", name,
                      static_cast<int>(call.reduction));
    if (call.reduction >= Reduction::first_own && !communicator.reductions.find(call.reduction))
        return refuse(Result::invalid_argument, "{} : reduction operation {} unknown to this communicator",
                      name, static_cast<int>(call.reduction));
    return Result::success;
}

Outcome<std::uint64_t> buffer(Library &library, const Communicator &communicator, const Call &call,
                              const BufferRule &rule, const void *address, const char *which) {
    const bool root = static_cast<std::uint32_t>(call.peer) == communicator.rank;
    if (rule.extent == Extent::none || (rule.whose == Whose::root && !root))
        return 0;
    const std::uint64_t ranks = rule.extent == Extent::each_rank ? communicator.size : 1;
    const auto unit = size_of(call.type) * ranks;
    if (call.count > std::numeric_limits<std::uint64_t>::max() / unit)
        return refused(Result::invalid_argument, "{} : {} elements are more than there can be",
                       rules_of(call.kind).name, call.count);
    if (call.count == 0)
        return 0;
    const auto found = library.driver.memory(communicator.place, address, call.count * unit);
    if (found)
        return *found;
    if (found.error().code == CUDA_ERROR_INVALID_VALUE || found.error().code == CUDA_ERROR_INVALID_DEVICE)
        return refused(Result::invalid_argument, "{} : {} {} is not a valid pointer: {}",
                       rules_of(call.kind).name, which, fmt::ptr(address), found.error().message());
    return refused(Result::unhandled_cuda_error, "{}", found.error().message());
}

Result reduction(const Communicator &communicator, const Call &call, protocol::CollectiveOperation &out) {
    if (!rules_of(call.kind).reduces || call.reduction < Reduction::first_own) {
        out.reduction = rules_of(call.kind).reduces ? static_cast<std::uint32_t>(call.reduction) : 0;
        return Result::success;
    }
    const auto own = communicator.reductions.find(call.reduction);
    if (!own || own->type != call.type)
        return refuse(Result::invalid_argument,
                      "Data type supplied to user-created ncclRedOp_t does not match type given to reduction "
                      "operation");
    out.reduction = protocol::kPremultipliedSum;
    out.scalar = own->scalar;
    out.scalar_address = own->scalar_address;
    return Result::success;
}

Result append(Library &library, Group &group, const CommunicatorPointer &communicator, const Call &call) {
    if (const auto bad = ready(library, *communicator); bad != Result::success)
        return bad;
    if (const auto bad = check(*communicator, call); bad != Result::success)
        return bad;
    // An empty collective is nothing on all ranks. An empty send is something to wait for.
    if (call.count == 0 && !is_point_to_point(call.kind))
        return Result::success;
    const auto &rules = rules_of(call.kind);
    protocol::CollectiveOperation operation{.kind = std::to_underlying(call.kind),
                                            .type = static_cast<std::uint32_t>(call.type),
                                            .peer = static_cast<std::uint32_t>(call.peer),
                                            .count = call.count};
    if (const auto bad = reduction(*communicator, call, operation); bad != Result::success)
        return bad;
    const auto input = buffer(library, *communicator, call, rules.input, call.input,
                              is_point_to_point(call.kind) ? "buff" : "sendbuff");
    if (!input)
        return input.error();
    const auto output = buffer(library, *communicator, call, rules.output, call.output,
                               is_point_to_point(call.kind) ? "buff" : "recvbuff");
    if (!output)
        return output.error();
    operation.input = *input;
    operation.output = *output;
    const auto stream = library.driver.stream(communicator->place, call.stream);
    if (!stream)
        return refuse(Result::unhandled_cuda_error, "{} : {}", rules.name, stream.error().message());
    return group.add(communicator, call.stream, *stream, operation);
}

} // namespace

Result perform(Library &library, const Call &call) {
    const char *const name = rules_of(call.kind).name;
    const auto communicator = known(library, call.communicator, name);
    if (!communicator)
        return Group::mine().note_if_open(communicator.error());
    if ((*communicator)->revoked)
        return Group::mine().note_if_open(
            refuse(Result::invalid_usage, "{}: communicator was revoked", name));
    if ((*communicator)->suspended)
        return Group::mine().note_if_open(
            refuse(Result::invalid_usage, "{}: communicator is suspended (see ncclCommResume)", name));
    return in_group(library, [&](Group &group) { return append(library, group, *communicator, call); });
}

Result create_premultiplied_sum(Library &library, Reduction *out, const void *scalar, DataType type,
                                Residence residence, CommunicatorHandle handle) {
    constexpr const char *kName = "ncclRedOpCreatePreMulSum";
    const auto communicator = known(library, handle, kName);
    if (!communicator)
        return communicator.error();
    if (const auto bad = ready(library, **communicator); bad != Result::success)
        return bad;
    if (const auto bad = given(out, kName, "op"); bad != Result::success)
        return bad;
    if (const auto bad = given(scalar, kName, "scalar"); bad != Result::success)
        return bad;
    if (!is_known(type))
        return refuse(Result::invalid_argument, "{} : invalid type {}", kName, static_cast<int>(type));
    OwnReduction one{.type = type};
    switch (residence) {
    case Residence::host:
        std::memcpy(&one.scalar, scalar, size_of(type));
        break;
    case Residence::device: {
        const auto address = library.driver.memory((*communicator)->place, scalar, size_of(type));
        if (!address)
            return refuse(Result::invalid_argument, "{} : scalar {} is not a valid pointer: {}", kName,
                          fmt::ptr(scalar), address.error().message());
        one.scalar_address = *address;
        break;
    }
    default:
        return refuse(Result::invalid_argument, "{} : invalid residence {}", kName,
                      static_cast<int>(residence));
    }
    const auto made = (*communicator)->reductions.add(one);
    if (!made)
        return refuse(Result::internal_error, "{} : there are too many reduction operations", kName);
    *out = *made;
    return Result::success;
}

Result destroy_reduction(Library &library, Reduction reduction, CommunicatorHandle handle) {
    constexpr const char *kName = "ncclRedOpDestroy";
    if (reduction >= Reduction::sum && reduction < Reduction::first_own)
        return refuse(Result::invalid_argument, "{} : operator is a NCCL builtin.", kName);
    if (reduction < Reduction::sum)
        return refuse(Result::invalid_argument, "{} :  operator is garbage.", kName);
    const auto communicator = known(library, handle, kName);
    if (!communicator)
        return communicator.error();
    if (!(*communicator)->reductions.remove(reduction))
        return refuse(Result::invalid_argument, "{} : operator unknown to this communicator.", kName);
    return Result::success;
}

} // namespace singularity::nccl
