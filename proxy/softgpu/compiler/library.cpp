// SPDX-License-Identifier: GPL-2.0-or-later
// The library's entry: regions become machine code of this processor, by LLVM's ORC.
#include "compiler/emitter.hpp"

#include <cstdlib>
#include <memory>

#include <llvm/ExecutionEngine/Orc/JITTargetMachineBuilder.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/Transforms/InstCombine/InstCombine.h>
#include <llvm/Transforms/Scalar/ADCE.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/GVN.h>
#include <llvm/Transforms/Scalar/LICM.h>
#include <llvm/Transforms/Scalar/SROA.h>
#include <llvm/Transforms/Scalar/SimplifyCFG.h>

namespace singularity::softgpu::compiler {

namespace {

using engine::NativeCompiled;
using engine::NativeHost;
using engine::NativeJob;

class Library {
  public:
    static Library &instance() {
        static auto &the = *new Library; // outlives every thread
        return the;
    }

    std::string start(const NativeHost &host) {
        host_ = host;
        if (__builtin_cpu_supports("x86-64-v3") == 0)
            return "the processor has no AVX2 and FMA";
        llvm::InitializeNativeTarget();
        llvm::InitializeNativeTargetAsmPrinter();
        auto builder = llvm::orc::JITTargetMachineBuilder::detectHost();
        if (!builder)
            return llvm::toString(builder.takeError());
        builder->setCodeGenOptLevel(llvm::CodeGenOptLevel::Default);
        builder->getOptions().AllowFPOpFusion = llvm::FPOpFusion::Strict; // a * b + c is rounded twice
        auto machine = builder->createTargetMachine();
        if (!machine)
            return llvm::toString(machine.takeError());
        machine_ = std::move(*machine);
        auto jit = llvm::orc::LLJITBuilder().setJITTargetMachineBuilder(std::move(*builder)).create();
        if (!jit)
            return llvm::toString(jit.takeError());
        jit_ = std::move(*jit);
        return {};
    }

    NativeCompiled compile(const NativeJob &job) {
        const std::optional<Region> region = make_region(job);
        if (!region)
            return {};
        auto context = std::make_unique<llvm::LLVMContext>();
        const std::string name = "region" + std::to_string(++number_);
        auto module = std::make_unique<llvm::Module>(name, *context);
        module->setDataLayout(jit_->getDataLayout());
        module->setTargetTriple(jit_->getTargetTriple().str());
        Emitter(*region, host_, *module, name).emit();
        if (std::getenv("SINGULARITY_SOFTGPU_DUMP") != nullptr)
            module->print(llvm::errs(), nullptr);
        if (llvm::verifyModule(*module, &llvm::errs()))
            return {};
        optimize(*module);
        if (std::getenv("SINGULARITY_SOFTGPU_DUMP") != nullptr)
            module->print(llvm::errs(), nullptr);
        const std::uint64_t bytes = 64 * std::uint64_t{region->step_count};
        auto tracker = jit_->getMainJITDylib().createResourceTracker();
        if (auto wrong = jit_->addIRModule(
                tracker, llvm::orc::ThreadSafeModule(std::move(module), std::move(context)))) {
            llvm::consumeError(std::move(wrong));
            return {};
        }
        auto symbol = jit_->lookup(name);
        if (!symbol) {
            llvm::consumeError(symbol.takeError());
            return {};
        }
        return {symbol->toPtr<engine::NativeRun>(), new llvm::orc::ResourceTrackerSP(tracker), bytes};
    }

    void release(void *handle) {
        const std::unique_ptr<llvm::orc::ResourceTrackerSP> tracker(
            static_cast<llvm::orc::ResourceTrackerSP *>(handle));
        if (auto wrong = (*tracker)->remove())
            llvm::consumeError(std::move(wrong));
    }

  private:
    void optimize(llvm::Module &module) {
        llvm::PipelineTuningOptions options;
        options.LoopVectorization = false;
        options.SLPVectorization = false;
        options.LoopUnrolling = false;
        options.LoopInterleaving = false;
        llvm::PassBuilder builder(machine_.get(), options);
        llvm::LoopAnalysisManager loops;
        llvm::FunctionAnalysisManager functions;
        llvm::CGSCCAnalysisManager graph;
        llvm::ModuleAnalysisManager modules;
        builder.registerModuleAnalyses(modules);
        builder.registerCGSCCAnalyses(graph);
        builder.registerFunctionAnalyses(functions);
        builder.registerLoopAnalyses(loops);
        builder.crossRegisterProxies(loops, functions, graph, modules);
        llvm::FunctionPassManager passes;
        passes.addPass(llvm::SROAPass(llvm::SROAOptions::ModifyCFG));
        passes.addPass(llvm::EarlyCSEPass(true));
        passes.addPass(llvm::InstCombinePass());
        passes.addPass(llvm::SimplifyCFGPass());
        passes.addPass(llvm::createFunctionToLoopPassAdaptor(llvm::LICMPass(llvm::LICMOptions()), true));
        passes.addPass(llvm::GVNPass());
        passes.addPass(llvm::InstCombinePass());
        passes.addPass(llvm::ADCEPass());
        passes.addPass(llvm::SimplifyCFGPass());
        for (llvm::Function &function : module)
            if (!function.isDeclaration())
                passes.run(function, functions);
    }

    NativeHost host_;
    std::unique_ptr<llvm::TargetMachine> machine_;
    std::unique_ptr<llvm::orc::LLJIT> jit_;
    std::uint64_t number_ = 0;
};

constexpr engine::NativeLibrary kLibrary{
    .start = [](const NativeHost &host) { return Library::instance().start(host); },
    .compile = [](const NativeJob &job) { return Library::instance().compile(job); },
    .release = [](void *handle) { Library::instance().release(handle); },
};

} // namespace

} // namespace singularity::softgpu::compiler

extern "C" [[gnu::visibility("default")]] const singularity::softgpu::engine::NativeLibrary *
singularity_softgpu_native();
const singularity::softgpu::engine::NativeLibrary *singularity_softgpu_native() {
    return &singularity::softgpu::compiler::kLibrary;
}
