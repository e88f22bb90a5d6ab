// SPDX-License-Identifier: GPL-2.0-or-later
// The library's entry: regions become machine code of this processor, by LLVM's ORC.
#include "compiler/emitter.hpp"

#include <memory>

#include <llvm/AsmParser/Parser.h>
#include <llvm/ExecutionEngine/Orc/JITTargetMachineBuilder.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/SourceMgr.h>
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
        return warm_up();
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
        if (llvm::verifyModule(*module, &llvm::errs()))
            return {};
        optimize(*module);
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
    // LLVM makes some of its data when it is first needed, and destroys it when the process ends, last made
    // first. Made here, it is older than what the engine registers for that moment.
    std::string warm_up() {
        constexpr const char *kText = R"(
declare <32 x i64> @llvm.masked.gather.v32i64.v32p0(<32 x ptr>, i32, <32 x i1>, <32 x i64>)
declare void @llvm.masked.scatter.v32i32.v32p0(<32 x i32>, <32 x ptr>, i32, <32 x i1>)
declare <32 x float> @llvm.fma.v32f32(<32 x float>, <32 x float>, <32 x float>)
declare i64 @llvm.vector.reduce.smin.v32i64(<32 x i64>)
define i32 @warm_up(ptr %at, i32 %mask, <32 x ptr> %many) {
  %m = bitcast i32 %mask to <32 x i1>
  %g = call <32 x i64> @llvm.masked.gather.v32i64.v32p0(<32 x ptr> %many, i32 8, <32 x i1> %m, <32 x i64> zeroinitializer)
  %r = call i64 @llvm.vector.reduce.smin.v32i64(<32 x i64> %g)
  %t = trunc <32 x i64> %g to <32 x i32>
  call void @llvm.masked.scatter.v32i32.v32p0(<32 x i32> %t, <32 x ptr> %many, i32 4, <32 x i1> %m)
  %w = load <48 x i32>, ptr %at
  %s = shufflevector <48 x i32> %w, <48 x i32> poison,
    <32 x i32> <i32 0, i32 3, i32 6, i32 9, i32 12, i32 15, i32 18, i32 21, i32 24, i32 27, i32 30, i32 33, i32 36, i32 39, i32 42, i32 45,
    i32 1, i32 4, i32 7, i32 10, i32 13, i32 16, i32 19, i32 22, i32 25, i32 28, i32 31, i32 34, i32 37, i32 40, i32 43, i32 46>
  %f = bitcast <32 x i32> %s to <32 x float>
  %p = call <32 x float> @llvm.fma.v32f32(<32 x float> %f, <32 x float> %f, <32 x float> %f)
  %o = fcmp uno <32 x float> %p, %p
  %b = bitcast <32 x i1> %o to i32
  %d = fpext <32 x float> %p to <32 x double>
  %i = fptosi <32 x double> %d to <32 x i64>
  store <32 x i64> %i, ptr %at
  %n = trunc i64 %r to i32
  %e = add i32 %b, %n
  ret i32 %e
}
)";
        auto context = std::make_unique<llvm::LLVMContext>();
        llvm::SMDiagnostic wrong;
        auto module = llvm::parseAssemblyString(kText, wrong, *context);
        if (module == nullptr)
            return wrong.getMessage().str();
        module->setDataLayout(jit_->getDataLayout());
        module->setTargetTriple(jit_->getTargetTriple().str());
        optimize(*module);
        if (auto failed =
                jit_->addIRModule(llvm::orc::ThreadSafeModule(std::move(module), std::move(context))))
            return llvm::toString(std::move(failed));
        if (auto symbol = jit_->lookup("warm_up"); !symbol)
            return llvm::toString(symbol.takeError());
        return {};
    }

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
