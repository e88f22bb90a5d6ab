// SPDX-License-Identifier: GPL-2.0-or-later
// Compilation at run time: NVRTC makes PTX of formulas that are put together here, templates are found by
// their lowered names, and the PTX is loaded by the driver API and as a library of the runtime. Argument:
// values.
#include "workload.cuh"

#include <cuda.h>
#include <nvrtc.h>

inline void check(CUresult status, int line, const char *what) {
    const char *name = nullptr;
    if (status != CUDA_SUCCESS) {
        cuGetErrorName(status, &name);
        workload::stop(__FILE__, line, what, name == nullptr ? "unknown error" : name);
    }
}
inline void check(nvrtcResult status, int line, const char *what) {
    if (status != NVRTC_SUCCESS)
        workload::stop(__FILE__, line, what, nvrtcGetErrorString(status));
}
#define DRIVER(call) check((call), __LINE__, #call)

const char *const source = R"(
template <typename T> struct Formula {
    __device__ T operator()(T x) const { return FORMULA; }
};
template <typename T, int repeats> __global__ void evaluate(const T *in, T *out, unsigned count) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count)
        return;
    T value = in[i];
    for (int round = 0; round < repeats; ++round)
        value = Formula<T>{}(value);
    out[i] = value;
}
)";

struct Compiled {
    std::string ptx, name;
};

Compiled compile(const std::string &formula, const char *instance) {
    nvrtcProgram program = nullptr;
    DRIVER(nvrtcCreateProgram(&program, source, "formula.cu", 0, nullptr, nullptr));
    DRIVER(nvrtcAddNameExpression(program, instance));
    const std::string definition = "-DFORMULA=" + formula;
    const char *const options[] = {"--gpu-architecture=compute_75", "--std=c++17", "--fmad=false",
                                   definition.c_str()};
    const nvrtcResult status = nvrtcCompileProgram(program, 4, options);
    std::size_t size = 0;
    if (status != NVRTC_SUCCESS) {
        DRIVER(nvrtcGetProgramLogSize(program, &size));
        std::string log(size, '\0');
        DRIVER(nvrtcGetProgramLog(program, log.data()));
        DRIVER(nvrtcDestroyProgram(&program));
        return {"", log.c_str()};
    }
    const char *lowered = nullptr;
    DRIVER(nvrtcGetLoweredName(program, instance, &lowered));
    DRIVER(nvrtcGetPTXSize(program, &size));
    Compiled result{std::string(size, '\0'), lowered};
    DRIVER(nvrtcGetPTX(program, result.ptx.data()));
    DRIVER(nvrtcDestroyProgram(&program));
    return result;
}

template <typename T>
std::vector<T> numbers(std::size_t count) {
    workload::Random random(149);
    std::vector<T> values(count);
    for (T &value : values)
        value = static_cast<T>(random.between(0.0F, 100.0F));
    return values;
}

template <typename T, typename Function>
std::vector<T> repeated(const std::vector<T> &values, int times, Function function) {
    std::vector<T> results;
    for (T value : values) {
        for (int i = 0; i < times; ++i)
            value = function(value);
        results.push_back(value);
    }
    return results;
}

int main(int argc, char **argv) {
    auto count = static_cast<unsigned>(workload::size_argument(argc, argv, 20000));
    workload::Report report;
    int major = 0;
    int minor = 0;
    DRIVER(nvrtcVersion(&major, &minor));
    report.expect(major >= 12, "version of NVRTC");
    CHECK(cudaFree(nullptr));

    const Compiled doubles = compile("x*0.5+3.0/(x*x+1.0)", "evaluate<double, 3>");
    if (doubles.ptx.empty())
        workload::stop(__FILE__, __LINE__, "compile", doubles.name);
    CUmodule module = nullptr;
    DRIVER(cuModuleLoadData(&module, doubles.ptx.c_str()));
    CUfunction function = nullptr;
    DRIVER(cuModuleGetFunction(&function, module, doubles.name.c_str()));
    const auto in = numbers<double>(count);
    workload::Buffer<double> device_in(in);
    workload::Buffer<double> device_out(count);
    double *from = device_in.data();
    double *to = device_out.data();
    void *parameters[] = {&from, &to, &count};
    DRIVER(cuLaunchKernel(function, workload::blocks_for(count, 128), 1, 1, 128, 1, 1, 0, nullptr, parameters,
                          nullptr));
    report.equal("doubles", device_out.read(),
                 repeated(in, 3, [](double x) { return x * 0.5 + 3.0 / (x * x + 1.0); }));
    DRIVER(cuModuleUnload(module));

    const Compiled integers = compile("x*1664525+((x>>7)^1013904223)", "evaluate<unsigned, 5>");
    cudaLibrary_t library = nullptr;
    CHECK(cudaLibraryLoadData(&library, integers.ptx.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
    cudaKernel_t kernel = nullptr;
    CHECK(cudaLibraryGetKernel(&kernel, library, integers.name.c_str()));
    const auto words = numbers<unsigned>(count);
    workload::Buffer<unsigned> device_words(words);
    workload::Buffer<unsigned> device_results(count);
    unsigned *words_from = device_words.data();
    unsigned *words_to = device_results.data();
    void *word_parameters[] = {&words_from, &words_to, &count};
    CHECK(cudaLaunchKernel(reinterpret_cast<const void *>(kernel), dim3(workload::blocks_for(count, 64)),
                           dim3(64), word_parameters, 0, nullptr));
    report.equal("integers", device_results.read(),
                 repeated(words, 5, [](unsigned x) { return x * 1664525U + ((x >> 7) ^ 1013904223U); }));
    CHECK(cudaLibraryUnload(library));

    const Compiled wrong = compile("x+undeclared", "evaluate<float, 1>");
    report.expect(wrong.ptx.empty() && wrong.name.find("undeclared") != std::string::npos,
                  "an error is in the compiler's log");
    return report.finish();
}
