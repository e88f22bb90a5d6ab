// SPDX-License-Identifier: GPL-2.0-or-later
// Bodies under gravity, leap-frog steps, all pairs with positions in shared memory and rsqrtf. Compared with
// the same computation in double on the CPU, and by its momentum. Argument: bodies.
#include "workload.cuh"

constexpr unsigned threads = 64;
constexpr float softening = 0.05F;
constexpr float time_step = 0.002F;
constexpr int steps = 4;

__global__ void accelerate(const float4 *bodies, float3 *velocities, int count) {
    __shared__ float4 others[threads];
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    const float4 own = i < count ? bodies[i] : make_float4(0, 0, 0, 0);
    float3 pull = make_float3(0, 0, 0);
    for (int start = 0; start < count; start += threads) {
        const int other = start + static_cast<int>(threadIdx.x);
        others[threadIdx.x] = other < count ? bodies[other] : make_float4(0, 0, 0, 0);
        __syncthreads();
        for (unsigned j = 0; j < threads; ++j) {
            const float x = others[j].x - own.x;
            const float y = others[j].y - own.y;
            const float z = others[j].z - own.z;
            const float inverse = rsqrtf(x * x + y * y + z * z + softening * softening);
            const float weight = others[j].w * inverse * inverse * inverse;
            pull.x += x * weight;
            pull.y += y * weight;
            pull.z += z * weight;
        }
        __syncthreads();
    }
    if (i < count) {
        velocities[i].x += time_step * pull.x;
        velocities[i].y += time_step * pull.y;
        velocities[i].z += time_step * pull.z;
    }
}

__global__ void drift(float4 *bodies, const float3 *velocities, int count) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < count) {
        bodies[i].x += time_step * velocities[i].x;
        bodies[i].y += time_step * velocities[i].y;
        bodies[i].z += time_step * velocities[i].z;
    }
}

struct Body {
    double position[3], velocity[3], mass;
};

void reference(std::vector<Body> &bodies) {
    for (Body &own : bodies)
        for (const Body &other : bodies) {
            double distance[3];
            double square = double{softening} * softening;
            for (int axis = 0; axis < 3; ++axis) {
                distance[axis] = other.position[axis] - own.position[axis];
                square += distance[axis] * distance[axis];
            }
            for (int axis = 0; axis < 3; ++axis)
                own.velocity[axis] += time_step * distance[axis] * other.mass / (square * std::sqrt(square));
        }
    for (Body &own : bodies)
        for (int axis = 0; axis < 3; ++axis)
            own.position[axis] += time_step * own.velocity[axis];
}

int main(int argc, char **argv) {
    const int count = static_cast<int>(workload::size_argument(argc, argv, 500, 1U << 18));
    workload::Random random(47);
    std::vector<float4> start(count);
    std::vector<float3> still(count, make_float3(0, 0, 0));
    std::vector<Body> bodies(count);
    for (int i = 0; i < count; ++i) {
        start[i] = make_float4(random.between(-1, 1), random.between(-1, 1), random.between(-1, 1),
                               random.between(0.1F, 1.0F) / static_cast<float>(count));
        bodies[i] = {{start[i].x, start[i].y, start[i].z}, {0, 0, 0}, start[i].w};
    }
    workload::Buffer<float4> positions(start);
    workload::Buffer<float3> velocities(still);
    const unsigned blocks = workload::blocks_for(count, threads);
    for (int step = 0; step < steps; ++step) {
        accelerate<<<blocks, threads>>>(positions.data(), velocities.data(), count);
        drift<<<blocks, threads>>>(positions.data(), velocities.data(), count);
        reference(bodies);
    }
    CHECK_LAUNCH();

    workload::Report report;
    const auto end = positions.read();
    const auto speed = velocities.read();
    std::vector<float> found;
    std::vector<double> expected;
    double momentum[3] = {0, 0, 0};
    for (int i = 0; i < count; ++i) {
        const float own[6] = {end[i].x, end[i].y, end[i].z, speed[i].x, speed[i].y, speed[i].z};
        found.insert(found.end(), own, own + 6);
        expected.insert(expected.end(), bodies[i].position, bodies[i].position + 3);
        expected.insert(expected.end(), bodies[i].velocity, bodies[i].velocity + 3);
        for (int axis = 0; axis < 3; ++axis)
            momentum[axis] += static_cast<double>(own[3 + axis]) * end[i].w;
    }
    report.near("positions and velocities", found, expected, 1e-5);
    for (const double part : momentum)
        report.near("momentum", part, 0.0, 1e-6);
    return report.finish();
}
