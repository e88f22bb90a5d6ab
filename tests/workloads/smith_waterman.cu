// SPDX-License-Identifier: GPL-2.0-or-later
// Local alignment of sequences with affine gaps (Smith, Waterman, Gotoh): one pair by anti-diagonals over the
// whole grid, and many pairs with a block for each. Scores equal the CPU's. Argument: length of the
// sequences.
#include "workload.cuh"

#include <algorithm>

constexpr int match = 3;
constexpr int mismatch = -2;
constexpr int gap_open = 5;
constexpr int gap_extend = 1;
constexpr int many_length = 64;

// Cells of three diagonals, indexed by row; best and gap scores.
struct Diagonals {
    int *best[3];
    int *down[2];
    int *right[2];
};

__device__ int cell(int letter_score, int diagonal, int up, int left, int down_before, int right_before,
                    int &down, int &right) {
    down = max(down_before - gap_extend, up - gap_open);
    right = max(right_before - gap_extend, left - gap_open);
    return max(max(0, diagonal + letter_score), max(down, right));
}

__global__ void diagonal_step(Diagonals cells, const char *a, const char *b, int length_a, int length_b,
                              int diagonal, int *highest) {
    const int first = max(1, diagonal - length_b);
    const int row = first + static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    const int column = diagonal - row;
    if (row > length_a || column < 1)
        return;
    int *const now = cells.best[diagonal % 3];
    const int *const before = cells.best[(diagonal + 2) % 3];
    const int *const two_before = cells.best[(diagonal + 1) % 3];
    int down = 0;
    int right = 0;
    const int above = row > 1 ? before[row - 1] : 0;
    const int left = column > 1 ? before[row] : 0;
    const int corner = row > 1 && column > 1 ? two_before[row - 1] : 0;
    const int down_before = row > 1 ? cells.down[(diagonal + 1) % 2][row - 1] : -1000;
    const int right_before = column > 1 ? cells.right[(diagonal + 1) % 2][row] : -1000;
    const int score = cell(a[row - 1] == b[column - 1] ? match : mismatch, corner, above, left, down_before,
                           right_before, down, right);
    now[row] = score;
    cells.down[diagonal % 2][row] = down;
    cells.right[diagonal % 2][row] = right;
    atomicMax(highest, score);
}

// A pair for each block, thread = row; neighbours' cells come through shared memory, diagonal by diagonal.
__global__ void many(const char *a, const char *b, int *scores) {
    __shared__ int best[3][many_length + 1];
    __shared__ int downs[2][many_length + 1];
    __shared__ int highest;
    const int row = static_cast<int>(threadIdx.x) + 1;
    const char *own_a = a + blockIdx.x * many_length;
    const char *own_b = b + blockIdx.x * many_length;
    for (int i = 0; i < 3; ++i)
        best[i][row] = best[i][0] = 0;
    downs[0][row] = downs[1][row] = downs[0][0] = downs[1][0] = -1000;
    if (row == 1)
        highest = 0;
    __syncthreads();
    int left = 0;
    int right_before = -1000;
    int own_highest = 0;
    for (int diagonal = 2; diagonal <= 2 * many_length; ++diagonal) {
        const int column = diagonal - row;
        if (column >= 1 && column <= many_length) {
            int down = 0;
            int right = 0;
            const int corner = column > 1 ? best[(diagonal + 1) % 3][row - 1] : 0;
            left = cell(own_a[row - 1] == own_b[column - 1] ? match : mismatch, corner,
                        best[(diagonal + 2) % 3][row - 1], left, downs[(diagonal + 1) % 2][row - 1],
                        right_before, down, right);
            best[diagonal % 3][row] = left;
            downs[diagonal % 2][row] = down;
            right_before = right;
            own_highest = max(own_highest, left);
        }
        __syncthreads();
    }
    atomicMax(&highest, own_highest);
    __syncthreads();
    if (row == 1)
        scores[blockIdx.x] = highest;
}

int reference(const char *a, const char *b, int length_a, int length_b) {
    std::vector<int> best(length_b + 1, 0);
    std::vector<int> down(length_b + 1, -1000);
    int highest = 0;
    for (int row = 1; row <= length_a; ++row) {
        int corner = 0;
        int right = -1000;
        for (int column = 1; column <= length_b; ++column) {
            down[column] = std::max(down[column] - gap_extend, best[column] - gap_open);
            right = std::max(right - gap_extend, best[column - 1] - gap_open);
            const int letters = corner + (a[row - 1] == b[column - 1] ? match : mismatch);
            corner = best[column];
            best[column] = std::max({0, letters, down[column], right});
            highest = std::max(highest, best[column]);
        }
    }
    return highest;
}

int main(int argc, char **argv) {
    const int length_a = static_cast<int>(workload::size_argument(argc, argv, 400, 1U << 16));
    const int length_b = length_a - length_a / 7;
    workload::Random random(97);
    const auto sequence = [&](std::size_t length) {
        std::vector<char> letters(length);
        for (char &letter : letters)
            letter = "ACGT"[random.below(4)];
        return letters;
    };
    const auto mutated = [&](const std::vector<char> &from, std::size_t length) {
        std::vector<char> letters;
        for (std::size_t i = 0; letters.size() < length; i = (i + 1) % from.size())
            switch (random.below(20)) {
            case 0:
                letters.push_back("ACGT"[random.below(4)]);
                break;
            case 1:
                break;
            case 2:
                letters.push_back(from[i]);
                [[fallthrough]];
            default:
                letters.push_back(from[i]);
            }
        letters.resize(length);
        return letters;
    };
    workload::Report report;

    const auto a = sequence(length_a);
    const auto b = mutated(a, length_b);
    workload::Buffer<char> device_a(a);
    workload::Buffer<char> device_b(b);
    workload::Buffer<int> memory(static_cast<std::size_t>(length_a + 1) * 7);
    workload::Buffer<int> highest(1);
    memory.clear();
    highest.clear();
    const auto line = [&](int i) { return memory.data() + static_cast<std::size_t>(i) * (length_a + 1); };
    const Diagonals cells{{line(0), line(1), line(2)}, {line(3), line(4)}, {line(5), line(6)}};
    for (int diagonal = 2; diagonal <= length_a + length_b; ++diagonal) {
        const int rows = std::min(length_a, diagonal - 1) - std::max(1, diagonal - length_b) + 1;
        diagonal_step<<<workload::blocks_for(rows, 128), 128>>>(cells, device_a.data(), device_b.data(),
                                                                length_a, length_b, diagonal, highest.data());
    }
    CHECK_LAUNCH();
    report.equal("one pair", highest.read(), {reference(a.data(), b.data(), length_a, length_b)});
    report.value("its score", highest.read()[0]);

    constexpr int pairs = 24;
    const auto many_a = sequence(std::size_t{pairs} * many_length);
    const auto many_b = mutated(many_a, many_a.size());
    std::vector<int> expected;
    for (int pair = 0; pair < pairs; ++pair)
        expected.push_back(reference(many_a.data() + pair * many_length, many_b.data() + pair * many_length,
                                     many_length, many_length));
    workload::Buffer<char> device_many_a(many_a);
    workload::Buffer<char> device_many_b(many_b);
    workload::Buffer<int> scores(pairs);
    many<<<pairs, many_length>>>(device_many_a.data(), device_many_b.data(), scores.data());
    CHECK_LAUNCH();
    report.equal("many pairs", scores.read(), expected);
    return report.finish();
}
