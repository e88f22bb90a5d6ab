// SPDX-License-Identifier: GPL-2.0-or-later
// The variables by which a virtual node's programs find its devices. They mean nothing outside.
#pragma once

#include <array>

namespace singularity::agent {

inline constexpr const char *kSocketsVariable = "SINGULARITY_PROXY_SOCKETS";
inline constexpr const char *kAuditVariable = "LD_AUDIT";
inline constexpr const char *kRedirectVariable = "SINGULARITY_REDIRECT_TO";
inline constexpr std::array kDeviceVariables{kSocketsVariable, kAuditVariable, kRedirectVariable};

} // namespace singularity::agent
