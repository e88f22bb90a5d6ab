// SPDX-License-Identifier: GPL-2.0-or-later
// The functions of CLI11, compiled once: its header-only form compiles them again in every file that includes
// it. Debian 12's version has no other form (see CMakeLists.txt).
#include <CLI/CLI.hpp>
#include <CLI/impl/App_inl.hpp>
#include <CLI/impl/Config_inl.hpp>
#include <CLI/impl/Formatter_inl.hpp>
#include <CLI/impl/Option_inl.hpp>
#include <CLI/impl/Split_inl.hpp>
#include <CLI/impl/StringTools_inl.hpp>
#include <CLI/impl/Validators_inl.hpp>
#if __has_include(<CLI/impl/Argv_inl.hpp>)
#include <CLI/impl/Argv_inl.hpp>
#endif
#if __has_include(<CLI/impl/Encoding_inl.hpp>)
#include <CLI/impl/Encoding_inl.hpp>
#endif
#if __has_include(<CLI/impl/ExtraValidators_inl.hpp>)
#include <CLI/impl/ExtraValidators_inl.hpp>
#endif
