// SPDX-License-Identifier: GPL-2.0-or-later
// Every collective x type x reduction x in place or not, for a communicator of the ranks that there are; each
// rank compares what it has to the bit with reference.cuh.
#include "members.cuh"
#include "reference.cuh"

using reference::Bytes;

namespace {

constexpr std::array types{ncclInt8,    ncclUint8,    ncclInt32,      ncclUint32,
                           ncclInt64,   ncclUint64,   ncclFloat16,    ncclFloat32,
                           ncclFloat64, ncclBfloat16, ncclFloat8e4m3, ncclFloat8e5m2};
constexpr std::array reductions{ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg};
constexpr unsigned char untouched = 0xA5;
constexpr std::size_t longest = 100003; // more than what goes at once

class Checker {
  public:
    Checker(const members::Member &member, ncclComm_t communicator, std::size_t most)
        : output_(most), separate_(most), member_(member), communicator_(communicator),
          size_(static_cast<std::size_t>(member.size)), rank_(static_cast<std::size_t>(member.rank)) {}

    void check(ncclDataType_t type, std::size_t count) {
        type_ = type;
        count_ = count;
        bytes_ = count * reference::size_of(type);
        for (const auto reduction : reductions)
            all_reductions(reduction, static_cast<reference::Operation>(reduction), nullptr);
        scaled_sums();
        copies();
    }
    [[nodiscard]] int done() const { return done_; }

  private:
    // So many elements for each rank, of every rank.
    std::vector<Bytes> inputs(std::size_t each) {
        std::vector<Bytes> out;
        ++salt_;
        for (int rank = 0; rank < member_.size; ++rank)
            out.push_back(reference::input_of(rank, type_, each * count_, salt_));
        return out;
    }
    static Bytes slice(const Bytes &of, std::size_t at, std::size_t size) {
        return {of.begin() + static_cast<long>(at), of.begin() + static_cast<long>(at + size)};
    }

    // call(send, receive): with `input` at `send`, which is within the output where in_place_at is given;
    // then what is at `receive` has to be `expected`, and what lies behind it untouched.
    template <class Call>
    void expect(const char *name, const Bytes &input, const Bytes &expected, std::ptrdiff_t in_place_at,
                Call call) {
        constexpr std::size_t guard = 64;
        const auto room = std::max(input.size(), expected.size());
        Bytes before(room + guard, untouched);
        unsigned char *send = separate_.data();
        unsigned char *receive = output_.data();
        if (in_place_at == kSeparate) {
            if (!input.empty())
                separate_.write(input);
        } else if (in_place_at >= 0) { // the input lies within the output
            std::copy(input.begin(), input.end(), before.begin() + in_place_at);
            send = output_.data() + in_place_at;
        } else { // the output lies within the input
            std::copy(input.begin(), input.end(), before.begin());
            send = output_.data();
            receive = output_.data() + (-in_place_at - 2);
        }
        output_.write(before);
        CHECK_NCCL(call(send, receive));
        CHECK(cudaStreamSynchronize(stream_));
        const auto after = output_.read(before.size());
        const auto at = static_cast<std::size_t>(receive - output_.data());
        EXPECT(slice(after, at, expected.size()) == expected,
               "%s, type %d, %zu elements, rank %d of %d, place %td", name, type_, count_, member_.rank,
               member_.size, in_place_at);
        EXPECT(slice(after, room, guard) == Bytes(guard, untouched), "%s, type %d wrote behind its output",
               name, type_);
        ++done_;
    }
    static constexpr std::ptrdiff_t kSeparate = std::numeric_limits<std::ptrdiff_t>::min();
    // That the output begins so far within the input.
    static std::ptrdiff_t within_input(std::size_t at) { return -static_cast<std::ptrdiff_t>(at) - 2; }

    void all_reductions(ncclRedOp_t op, reference::Operation operation, const void *scalar) {
        for (const bool in_place : {false, true}) {
            const auto place = in_place ? std::ptrdiff_t{0} : kSeparate;
            const auto one = inputs(1);
            const auto sum = reference::reduce(one, type_, operation, scalar);
            expect("AllReduce", one[rank_], sum, place, [&](const void *send, void *receive) {
                return ncclAllReduce(send, receive, count_, type_, op, communicator_, stream_);
            });
            const int root = static_cast<int>(++roots_ % size_);
            const bool mine = root == member_.rank;
            // Elsewhere the output is not used; where it is the input, that stays.
            expect("Reduce", one[rank_],
                   mine       ? sum
                   : in_place ? one[rank_]
                              : Bytes(bytes_, untouched),
                   place, [&](const void *send, void *receive) {
                       return ncclReduce(send, mine || in_place ? receive : nullptr, count_, type_, op, root,
                                         communicator_, stream_);
                   });
            const auto each = inputs(size_);
            const auto sums = reference::reduce(each, type_, operation, scalar);
            expect("ReduceScatter", each[rank_], slice(sums, rank_ * bytes_, bytes_),
                   in_place ? within_input(rank_ * bytes_) : kSeparate, [&](const void *send, void *receive) {
                       return ncclReduceScatter(send, receive, count_, type_, op, communicator_, stream_);
                   });
        }
    }

    void scaled_sums() {
        const auto scalar = reference::input_of(99, type_, 1, 4711);
        ncclRedOp_t op{};
        CHECK_NCCL(ncclRedOpCreatePreMulSum(&op, const_cast<unsigned char *>(scalar.data()), type_,
                                            ncclScalarHostImmediate, communicator_));
        all_reductions(op, reference::Operation::scaled_sum, scalar.data());
        CHECK_NCCL(ncclRedOpDestroy(op, communicator_));
        scalar_.write(scalar);
        CHECK_NCCL(ncclRedOpCreatePreMulSum(&op, scalar_.data(), type_, ncclScalarDevice, communicator_));
        all_reductions(op, reference::Operation::scaled_sum, scalar.data());
        CHECK_NCCL(ncclRedOpDestroy(op, communicator_));
    }

    void copies() {
        const auto one = inputs(1);
        Bytes together;
        for (const auto &each : one)
            together.insert(together.end(), each.begin(), each.end());
        const auto many = inputs(size_);
        for (const bool in_place : {false, true}) {
            const int root = static_cast<int>(++roots_ % size_);
            const bool mine = root == member_.rank;
            const auto same = in_place ? std::ptrdiff_t{0} : kSeparate;
            const auto own = static_cast<std::ptrdiff_t>(rank_ * bytes_);
            const auto at_root = one[static_cast<std::size_t>(root)];
            expect("Broadcast", one[rank_], at_root, same, [&](const void *send, void *receive) {
                return ncclBroadcast(mine || in_place ? send : nullptr, receive, count_, type_, root,
                                     communicator_, stream_);
            });
            expect("AllGather", one[rank_], together, in_place ? own : kSeparate,
                   [&](const void *send, void *receive) {
                       return ncclAllGather(send, receive, count_, type_, communicator_, stream_);
                   });
            expect("Gather", one[rank_],
                   mine       ? together
                   : in_place ? one[rank_]
                              : Bytes(bytes_, untouched),
                   !in_place ? kSeparate
                   : mine    ? own
                             : 0,
                   [&](const void *send, void *receive) {
                       return ncclGather(send, mine || in_place ? receive : nullptr, count_, type_, root,
                                         communicator_, stream_);
                   });
            const auto &from = many[static_cast<std::size_t>(root)];
            expect("Scatter", mine ? from : Bytes(), slice(from, rank_ * bytes_, bytes_),
                   in_place && mine ? within_input(rank_ * bytes_) : kSeparate,
                   [&](const void *send, void *receive) {
                       return ncclScatter(mine ? send : nullptr, receive, count_, type_, root, communicator_,
                                          stream_);
                   });
        }
        expect("Bcast", one[rank_], one[0], 0, [&](const void * /*send*/, void *receive) {
            return ncclBcast(receive, count_, type_, 0, communicator_, stream_);
        });
        Bytes turned;
        for (const auto &each : many) {
            const auto part = slice(each, rank_ * bytes_, bytes_);
            turned.insert(turned.end(), part.begin(), part.end());
        }
        expect("AlltoAll", many[rank_], turned, kSeparate, [&](const void *send, void *receive) {
            return ncclAlltoAll(send, receive, count_, type_, communicator_, stream_);
        });
        const auto before = (rank_ + size_ - 1) % size_;
        const auto behind = static_cast<int>((rank_ + 1) % size_);
        expect("SendRecv", one[rank_], one[before], kSeparate, [&](const void *send, void *receive) {
            CHECK_NCCL(ncclGroupStart());
            CHECK_NCCL(ncclSend(send, count_, type_, behind, communicator_, stream_));
            CHECK_NCCL(ncclRecv(receive, count_, type_, static_cast<int>(before), communicator_, stream_));
            return ncclGroupEnd();
        });
    }

    // Made once: freeing memory waits for the device, which other threads' ranks may share.
    workload::Buffer<unsigned char> output_;
    workload::Buffer<unsigned char> separate_;
    workload::Buffer<unsigned char> scalar_{sizeof(std::uint64_t)};
    members::Member member_;
    ncclComm_t communicator_;
    std::size_t size_;
    std::size_t rank_;
    members::Stream stream_;
    ncclDataType_t type_ = ncclInt8;
    std::size_t count_ = 0;
    std::size_t bytes_ = 0;
    unsigned salt_ = 0;
    std::size_t roots_ = 0;
    int done_ = 0;
};

} // namespace

int main(int argc, char **argv) {
    return members::run(argc, argv, [](const members::Member &member) {
        const ncclComm_t communicator = members::join(member);
        Checker checker(member, communicator,
                        (static_cast<std::size_t>(member.size) * longest + 64) * sizeof(float));
        for (const auto type : types)
            checker.check(type, 37);
        checker.check(ncclFloat, longest);
        CHECK_NCCL(ncclCommDestroy(communicator));
        std::printf("rank %d of %d: %d comparisons\n", member.rank, member.size, checker.done());
    });
}
