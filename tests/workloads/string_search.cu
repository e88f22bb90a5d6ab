// SPDX-License-Identifier: GPL-2.0-or-later
// All places of several patterns in a text: each thread compares with a window in shared memory,
// and an Aho-Corasick automaton runs over overlapping pieces. Argument: bytes of text.
#include "workload.cuh"

#include <algorithm>
#include <queue>

constexpr int longest = 16;
constexpr int patterns = 6;
constexpr unsigned threads = 128;

struct Pattern {
    char letters[longest];
    int length;
};

__constant__ Pattern device_patterns[patterns];

// found[i]: a bit for each pattern that begins at i.
__global__ void compare(const char *text, unsigned length, unsigned *found) {
    __shared__ char window[threads + longest];
    const unsigned i = blockIdx.x * threads + threadIdx.x;
    for (unsigned j = threadIdx.x; j < threads + longest; j += threads)
        window[j] = blockIdx.x * threads + j < length ? text[blockIdx.x * threads + j] : '\0';
    __syncthreads();
    if (i >= length)
        return;
    unsigned bits = 0;
    for (int p = 0; p < patterns; ++p) {
        int same = 0;
        while (same < device_patterns[p].length &&
               window[threadIdx.x + same] == device_patterns[p].letters[same])
            ++same;
        if (same == device_patterns[p].length)
            bits |= 1U << p;
    }
    found[i] = bits;
}

// ends[i]: a bit for each pattern that ends at i, by an automaton with 4 letters; each thread has a piece,
// and begins as many letters before it as the longest pattern has.
__global__ void run_automaton(const char *text, unsigned length, const short *moves, const unsigned *outputs,
                              unsigned piece, unsigned *ends) {
    const unsigned begin = (blockIdx.x * blockDim.x + threadIdx.x) * piece;
    if (begin >= length)
        return;
    int state = 0;
    for (unsigned i = begin < longest ? 0 : begin - longest; i < min(begin + piece, length); ++i) {
        state = moves[state * 4 + ((text[i] >> 1) & 3)];
        if (i >= begin)
            ends[i] = outputs[state];
    }
}

struct Automaton {
    std::vector<short> moves;
    std::vector<unsigned> outputs;
};

Automaton automaton_of(const std::vector<Pattern> &list) {
    Automaton made{std::vector<short>(4, -1), {0}};
    for (std::size_t p = 0; p < list.size(); ++p) {
        int state = 0;
        for (int i = 0; i < list[p].length; ++i) {
            const int letter = (list[p].letters[i] >> 1) & 3;
            if (made.moves[state * 4 + letter] < 0) {
                made.moves[state * 4 + letter] = static_cast<short>(made.outputs.size());
                made.moves.insert(made.moves.end(), 4, -1);
                made.outputs.push_back(0);
            }
            state = made.moves[state * 4 + letter];
        }
        made.outputs[state] |= 1U << p;
    }
    std::vector<int> fallback(made.outputs.size(), 0);
    std::queue<int> open;
    open.push(0);
    while (!open.empty()) {
        const int state = open.front();
        open.pop();
        made.outputs[state] |= made.outputs[fallback[state]];
        for (int letter = 0; letter < 4; ++letter) {
            short &move = made.moves[state * 4 + letter];
            const short other = state == 0 ? short{0} : made.moves[fallback[state] * 4 + letter];
            if (move < 0)
                move = other;
            else {
                fallback[move] = other;
                open.push(move);
            }
        }
    }
    return made;
}

int main(int argc, char **argv) {
    const auto length = static_cast<unsigned>(workload::size_argument(argc, argv, 30000, 1U << 26));
    workload::Random random(101);
    std::vector<char> text(length);
    for (char &letter : text)
        letter = "ACGT"[random.below(7) % 4];
    std::vector<Pattern> list(patterns);
    const int lengths[patterns] = {3, 4, 5, 7, 10, 16};
    for (int p = 0; p < patterns; ++p) {
        list[p].length = lengths[p];
        const unsigned from = random.below(length - longest); // so that each occurs
        for (int i = 0; i < lengths[p]; ++i)
            list[p].letters[i] = text[from + i];
    }
    std::vector<unsigned> begins(length, 0);
    std::vector<unsigned> ends(length, 0);
    for (int p = 0; p < patterns; ++p)
        for (auto at = text.begin();; ++at) {
            at = std::search(at, text.end(), list[p].letters, list[p].letters + list[p].length);
            if (at == text.end())
                break;
            begins[at - text.begin()] |= 1U << p;
            ends[at - text.begin() + list[p].length - 1] |= 1U << p;
        }

    workload::Report report;
    workload::Buffer<char> device_text(text);
    workload::Buffer<unsigned> found(length);
    CHECK(cudaMemcpyToSymbol(device_patterns, list.data(), sizeof(Pattern) * patterns));
    compare<<<workload::blocks_for(length, threads), threads>>>(device_text.data(), length, found.data());
    CHECK_LAUNCH();
    report.equal("comparison", found.read(), begins);
    for (int p = 0; p < patterns; ++p)
        report.value("found",
                     std::count_if(begins.begin(), begins.end(), [p](unsigned b) { return (b >> p) & 1; }));

    const Automaton automaton = automaton_of(list);
    workload::Buffer<short> moves(automaton.moves);
    workload::Buffer<unsigned> outputs(automaton.outputs);
    constexpr unsigned piece = 64;
    found.clear();
    run_automaton<<<workload::blocks_for(length, piece * 32), 32>>>(device_text.data(), length, moves.data(),
                                                                    outputs.data(), piece, found.data());
    CHECK_LAUNCH();
    report.equal("automaton", found.read(), ends);
    return report.finish();
}
