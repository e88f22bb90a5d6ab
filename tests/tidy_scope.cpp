// SPDX-License-Identifier: GPL-2.0-or-later
// A plugin of clang-tidy: checks see the declarations that the project has written, and those in headers of
// the system only where these use them. clang-tidy 19 matches every check against every declaration of a
// translation unit, drops what it finds in the system's headers, and spends four fifths of its time on that.
// clangd limits its checks in the same way.
#include <memory>
#include <string>
#include <vector>

#include <clang/AST/ASTConsumer.h>
#include <clang/AST/ASTContext.h>
#include <clang/Basic/SourceManager.h>
#include <clang/Frontend/CompilerInstance.h>
#include <clang/Frontend/FrontendPluginRegistry.h>

namespace {

// Its turn is before clang-tidy's own consumers, which take the scope from the context.
class LimitScope : public clang::ASTConsumer {
  public:
    bool HandleTopLevelDecl(clang::DeclGroupRef group) override {
        declarations_.insert(declarations_.end(), group.begin(), group.end());
        return true;
    }
    void HandleTranslationUnit(clang::ASTContext &context) override {
        const clang::SourceManager &sources = context.getSourceManager();
        std::erase_if(declarations_, [&sources](const clang::Decl *declaration) {
            return sources.isInSystemHeader(sources.getExpansionLoc(declaration->getLocation()));
        });
        context.setTraversalScope(declarations_);
    }

  private:
    std::vector<clang::Decl *> declarations_;
};

class Action : public clang::PluginASTAction {
  public:
    std::unique_ptr<clang::ASTConsumer> CreateASTConsumer(clang::CompilerInstance & /*compiler*/,
                                                          llvm::StringRef /*file*/) override {
        return std::make_unique<LimitScope>();
    }
    bool ParseArgs(const clang::CompilerInstance & /*compiler*/,
                   const std::vector<std::string> & /*arguments*/) override {
        return true;
    }
    ActionType getActionType() override { return AddBeforeMainAction; }
};

const clang::FrontendPluginRegistry::Add<Action> kRegistered("project-scope",
                                                             "checks only what the project has written");

} // namespace
