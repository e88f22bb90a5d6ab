// SPDX-License-Identifier: GPL-2.0-or-later
// One function for each hand-written message: does what the message asks, fills the reply, and returns the
// result that the program sees. Those of one subject are in one file.
#pragma once

#include "call.hpp"
#include "proxy/protocol/all.hpp"

namespace singularity::proxyd::handlers {

template <class M>
using Request = protocol::Message<M>;
template <class M>
using Reply = protocol::ReplyMessage<typename M::Reply>;

// contexts.cpp
CUresult handle(Call &call, const Request<protocol::CreateContext> &request,
                Reply<protocol::CreateContext> &reply);
CUresult handle(Call &call, const Request<protocol::DestroyContext> &request,
                Reply<protocol::DestroyContext> &reply);
// memory.cpp
CUresult handle(Call &call, const Request<protocol::MapSlab> &request, Reply<protocol::MapSlab> &reply);
CUresult handle(Call &call, const Request<protocol::UnmapSlab> &request, Reply<protocol::UnmapSlab> &reply);
CUresult handle(Call &call, const Request<protocol::ReserveAddress> &request,
                Reply<protocol::ReserveAddress> &reply);
CUresult handle(Call &call, const Request<protocol::FreeAddress> &request,
                Reply<protocol::FreeAddress> &reply);
CUresult handle(Call &call, const Request<protocol::MapHostMemory> &request,
                Reply<protocol::MapHostMemory> &reply);
CUresult handle(Call &call, const Request<protocol::UnmapHostMemory> &request,
                Reply<protocol::UnmapHostMemory> &reply);
CUresult handle(Call &call, const Request<protocol::MemoryInfo> &request, Reply<protocol::MemoryInfo> &reply);
CUresult handle(Call &call, const Request<protocol::ShareSlab> &request, Reply<protocol::ShareSlab> &reply);
CUresult handle(Call &call, const Request<protocol::EndExport> &request, Reply<protocol::EndExport> &reply);
CUresult handle(Call &call, const Request<protocol::OpenSlab> &request, Reply<protocol::OpenSlab> &reply);
CUresult handle(Call &call, const Request<protocol::RetainAllocation> &request,
                Reply<protocol::RetainAllocation> &reply);
CUresult handle(Call &call, const Request<protocol::FinishRestore> &request,
                Reply<protocol::FinishRestore> &reply);
// copies.cpp
CUresult handle(Call &call, const Request<protocol::WriteMemory> &request);
CUresult handle(Call &call, const Request<protocol::ReadMemory> &request, Reply<protocol::ReadMemory> &reply);
CUresult handle(Call &call, const Request<protocol::CopyMemory> &request);
CUresult handle(Call &call, const Request<protocol::WriteBox> &request);
CUresult handle(Call &call, const Request<protocol::ReadBox> &request, Reply<protocol::ReadBox> &reply);
CUresult handle(Call &call, const Request<protocol::CopyBox> &request);
// code.cpp
CUresult handle(Call &call, const Request<protocol::BeginBlob> &request);
CUresult handle(Call &call, const Request<protocol::BlobData> &request);
CUresult handle(Call &call, const Request<protocol::DropBlob> &request);
CUresult handle(Call &call, const Request<protocol::ReadBlob> &request, Reply<protocol::ReadBlob> &reply);
CUresult handle(Call &call, const Request<protocol::LoadModule> &request, Reply<protocol::LoadModule> &reply);
CUresult handle(Call &call, const Request<protocol::LoadLibrary> &request,
                Reply<protocol::LoadLibrary> &reply);
CUresult handle(Call &call, const Request<protocol::CreateLink> &request, Reply<protocol::CreateLink> &reply);
CUresult handle(Call &call, const Request<protocol::AddLinkData> &request,
                Reply<protocol::AddLinkData> &reply);
CUresult handle(Call &call, const Request<protocol::CompleteLink> &request,
                Reply<protocol::CompleteLink> &reply);
// functions.cpp
CUresult handle(Call &call, const Request<protocol::FunctionLayout> &request,
                Reply<protocol::FunctionLayout> &reply);
CUresult handle(Call &call, const Request<protocol::FunctionName> &request,
                Reply<protocol::FunctionName> &reply);
CUresult handle(Call &call, const Request<protocol::FunctionOwner> &request,
                Reply<protocol::FunctionOwner> &reply);
// launches.cpp
CUresult handle(Call &call, const Request<protocol::LaunchKernel> &request);
CUresult handle(Call &call, const Request<protocol::LaunchHostFunction> &request);
CUresult handle(Call &call, const Request<protocol::OccupancyOfClusters> &request,
                Reply<protocol::OccupancyOfClusters> &reply);
// processors.cpp
CUresult handle(Call &call, const Request<protocol::ProcessorPlaces> &request,
                Reply<protocol::ProcessorPlaces> &reply);
// streams.cpp
CUresult handle(Call &call, const Request<protocol::GetStreamAttribute> &request,
                Reply<protocol::GetStreamAttribute> &reply);
CUresult handle(Call &call, const Request<protocol::SetStreamAttribute> &request,
                Reply<protocol::SetStreamAttribute> &reply);
CUresult handle(Call &call, const Request<protocol::ShareEvent> &request, Reply<protocol::ShareEvent> &reply);
CUresult handle(Call &call, const Request<protocol::OpenEvent> &request, Reply<protocol::OpenEvent> &reply);
CUresult handle(Call &call, const Request<protocol::CaptureInfo> &request,
                Reply<protocol::CaptureInfo> &reply);
// graphs.cpp, nodes.cpp
CUresult handle(Call &call, const Request<protocol::AddNode> &request, Reply<protocol::AddNode> &reply);
CUresult handle(Call &call, const Request<protocol::SetNode> &request, Reply<protocol::SetNode> &reply);
CUresult handle(Call &call, const Request<protocol::GetNode> &request, Reply<protocol::GetNode> &reply);
CUresult handle(Call &call, const Request<protocol::GetNodeAttribute> &request,
                Reply<protocol::GetNodeAttribute> &reply);
CUresult handle(Call &call, const Request<protocol::SetNodeAttribute> &request,
                Reply<protocol::SetNodeAttribute> &reply);
CUresult handle(Call &call, const Request<protocol::InstantiateGraph> &request,
                Reply<protocol::InstantiateGraph> &reply);
CUresult handle(Call &call, const Request<protocol::InstantiateParts> &request,
                Reply<protocol::InstantiateParts> &reply);
CUresult handle(Call &call, const Request<protocol::UpdateGraphExec> &request,
                Reply<protocol::UpdateGraphExec> &reply);
CUresult handle(Call &call, const Request<protocol::PrintGraph> &request, Reply<protocol::PrintGraph> &reply);
// textures.cpp
CUresult handle(Call &call, const Request<protocol::CreateTexture> &request,
                Reply<protocol::CreateTexture> &reply);
CUresult handle(Call &call, const Request<protocol::CreateSurface> &request,
                Reply<protocol::CreateSurface> &reply);
// collectives.cpp
CUresult handle(Call &call, const Request<protocol::JoinCommunicator> &request,
                Reply<protocol::JoinCommunicator> &reply);
CUresult handle(Call &call, const Request<protocol::CommunicatorState> &request,
                Reply<protocol::CommunicatorState> &reply);
CUresult handle(Call &call, const Request<protocol::IssueCollectives> &request);
CUresult handle(Call &call, const Request<protocol::ExchangeWithMembers> &request,
                Reply<protocol::ExchangeWithMembers> &reply);
CUresult handle(Call &call, const Request<protocol::LeaveCommunicator> &request,
                Reply<protocol::LeaveCommunicator> &reply);

} // namespace singularity::proxyd::handlers
