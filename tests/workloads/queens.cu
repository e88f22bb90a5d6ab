// SPDX-License-Identifier: GPL-2.0-or-later
// Placements of queens, counted by recursion on the device in three ways that are called through a table of
// function pointers; and Ackermann's function, for deep recursion. Argument: side of the board.
#include "workload.cuh"

constexpr int most = 14;

struct Board {
    int side;
    int row;
    unsigned columns, falling, rising; // occupied, seen from this row
    signed char queens[most];          // column of each row before
};

using Counter = unsigned long long (*)(const Board &);

__device__ __noinline__ unsigned long long by_masks(const Board &board) {
    if (board.row == board.side)
        return 1;
    unsigned long long found = 0;
    unsigned open = ((1U << board.side) - 1) & ~(board.columns | board.falling | board.rising);
    while (open != 0) {
        const unsigned column = open & (0U - open);
        open ^= column;
        Board next = board;
        ++next.row;
        next.columns |= column;
        next.falling = (next.falling | column) << 1;
        next.rising = (next.rising | column) >> 1;
        found += by_masks(next);
    }
    return found;
}

__device__ bool safe(const Board &board, int column) {
    for (int row = 0; row < board.row; ++row) {
        const int distance = board.queens[row] - column;
        if (distance == 0 || distance == board.row - row || distance == row - board.row)
            return false;
    }
    return true;
}

__device__ __noinline__ unsigned long long by_columns(const Board &board) {
    if (board.row == board.side)
        return 1;
    unsigned long long found = 0;
    for (int column = 0; column < board.side; ++column)
        if (safe(board, column)) {
            Board next = board;
            next.queens[next.row++] = static_cast<signed char>(column);
            found += by_columns(next);
        }
    return found;
}

// No recursion: one board, changed and restored.
__device__ __noinline__ unsigned long long by_backtracking(const Board &board) {
    Board own = board;
    unsigned long long found = 0;
    int column = 0;
    while (true) {
        while (column < own.side && own.row < own.side && !safe(own, column))
            ++column;
        if (own.row < own.side && column < own.side) {
            own.queens[own.row++] = static_cast<signed char>(column);
            column = 0;
            continue;
        }
        found += own.row == own.side ? 1 : 0;
        if (own.row == board.row)
            return found;
        column = own.queens[--own.row] + 1;
    }
}

__device__ const Counter counters[3] = {by_masks, by_columns, by_backtracking};

// A thread has the first two queens; the way to count changes from thread to thread if `mixed`.
__global__ void count(int side, int way, bool mixed, unsigned long long *total) {
    const int thread = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (thread >= side * side)
        return;
    Board board{};
    board.side = side;
    for (const int column : {thread / side, thread % side}) {
        if (!safe(board, column))
            return;
        board.queens[board.row++] = static_cast<signed char>(column);
        const unsigned bit = 1U << column;
        board.columns |= bit;
        board.falling = (board.falling | bit) << 1;
        board.rising = (board.rising | bit) >> 1;
    }
    atomicAdd(total, counters[mixed ? thread % 3 : way](board));
}

__device__ __noinline__ int ackermann(int m, int n) {
    if (m == 0)
        return n + 1;
    return n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}

__global__ void deep(int *result) { *result = ackermann(2, static_cast<int>(threadIdx.x) + 4); }

unsigned long long on_host(int side, unsigned columns, unsigned falling, unsigned rising, int row) {
    if (row == side)
        return 1;
    unsigned long long found = 0;
    for (unsigned open = ((1U << side) - 1) & ~(columns | falling | rising); open != 0; open &= open - 1) {
        const unsigned column = open & (0U - open);
        found += on_host(side, columns | column, (falling | column) << 1, (rising | column) >> 1, row + 1);
    }
    return found;
}

int main(int argc, char **argv) {
    const int side = static_cast<int>(workload::size_argument(argc, argv, 7, most));
    CHECK(cudaDeviceSetLimit(cudaLimitStackSize, 8192));
    const unsigned long long expected = on_host(side, 0, 0, 0, 0);
    workload::Report report;
    workload::Buffer<unsigned long long> total(1);
    const char *const names[4] = {"by masks", "by columns", "by backtracking", "mixed"};
    for (int way = 0; way < 4; ++way) {
        total.clear();
        count<<<workload::blocks_for(static_cast<std::size_t>(side) * side, 32), 32>>>(
            side, way % 3, way == 3, total.data());
        CHECK_LAUNCH();
        report.value(names[way], total.read()[0]);
        report.expect(total.read()[0] == expected, names[way]);
    }
    workload::Buffer<int> result(1);
    deep<<<1, 1>>>(result.data());
    CHECK_LAUNCH();
    report.value("ackermann", result.read()[0]);
    report.expect(result.read()[0] == 11, "ackermann(2, 4)");
    return report.finish();
}
