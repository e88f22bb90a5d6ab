// SPDX-License-Identifier: GPL-2.0-or-later
// What the checkpoint store and the planner read from disks that other hosts write as well: manifests, parts
// of manifests, accounts, rounds of the garbage collection, chunks, the planner's ledgers and its list of
// protected jobs. Where a file ends with its own hash, what is read has a right one: an attacker can compute
// it, too.
#include "criu-hooks/store/store.hpp"

#include "account.hpp"
#include "chunk_file.hpp"
#include "common/unique_fd.hpp"
#include "manifest_file.hpp"
#include "memory_directory.hpp"
#include "records.hpp"
#include "rounds.hpp"
#include "select-plugin/protection.hpp"
#include "table.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

namespace singularity::test {

namespace {

using Data = std::vector<std::byte>;

constexpr std::uint32_t kUid = 1001;

Data data_of(std::string_view text) {
    const auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
}
std::string text_of(std::span<const std::byte> data) {
    return {reinterpret_cast<const char *>(data.data()), data.size()};
}

Data with_right_hash(std::string_view text) {
    auto data = data_of(text);
    if (data.size() < store::Hash::kSize)
        return data;
    const auto at = data.size() - store::Hash::kSize;
    const auto hash = store::hash_of(std::span(data).first(at));
    std::ranges::copy(hash.bytes, data.begin() + static_cast<std::ptrdiff_t>(at));
    return data;
}

const UniqueFd &memory_file(std::span<const std::byte> data) {
    static const UniqueFd kFile(memfd_create("fuzz-store", MFD_CLOEXEC));
    expect(ftruncate(kFile.get(), 0) == 0 && store::write_all(kFile, data, 0, "memory").has_value(),
           "there is room in memory");
    return kFile;
}

Data content_of(const UniqueFd &file) {
    Data data(static_cast<std::size_t>(lseek(file.get(), 0, SEEK_END)));
    expect(store::read_all(file, data, 0, "memory").has_value(), "memory can be read");
    return data;
}

struct Place {
    Place() {
        store::Options options;
        options.create = true;
        options.threads = 1;
        auto opened = store::Store::open(directory.path() / "store", options);
        expect(opened.has_value(), "a store can be made in memory");
        auto users = opened->state()->space(kUid, store::Missing::kCreate);
        expect(users.has_value(), "a user has a place in it");
        space = std::move(*users);
    }
    MemoryDirectory directory;
    std::shared_ptr<store::UserSpace> space;
};
Place &place() {
    static Place instance;
    return instance;
}

store::Manifest manifest_of(std::size_t nodes) {
    store::Manifest out;
    out.id = "20261121T101500-6b1c04f2a93e7d58";
    out.job = "4711";
    out.uid = kUid;
    out.user = "alice";
    out.time = 1'795'000'000;
    out.attributes = {{"world size", "4"}};
    for (std::size_t at = 0; at < nodes; ++at) {
        store::VirtualNode node;
        node.name = fmt::format("node{}", at);
        node.images.push_back({"pages", {{store::hash_of({}), 4096, 2088}, {{}, 4096, 0}}});
        store::Device device;
        device.name = "GPU-1";
        device.images.push_back({"slabs", {{store::hash_of({}), 4096, 2088}}});
        node.devices.push_back(std::move(device));
        out.nodes.push_back(std::move(node));
    }
    return out;
}

std::string good_manifest(std::size_t nodes) {
    const auto &file = memory_file({});
    expect(store::write_manifest(file, "memory", manifest_of(nodes)).has_value(),
           "a manifest can be written");
    return text_of(content_of(file));
}

bool reads_manifest(std::string_view bytes) {
    const auto data = with_right_hash(bytes);
    const auto manifest = store::read_manifest(memory_file(data), "memory");
    if (!manifest)
        return false;
    const auto &again = memory_file({});
    expect(store::write_manifest(again, "memory", *manifest) && content_of(again) == data,
           "a manifest is written as it was read");
    return true;
}

bool reads_nodes(std::string_view bytes) {
    const auto data = data_of(bytes);
    const auto nodes = store::decode_nodes(data);
    if (nodes)
        expect(store::encode_nodes(*nodes) == data, "nodes are written as they were read");
    return nodes.has_value();
}

// As Account::encode() says.
std::string good_account() {
    std::string out = "singularity-used";
    const auto add = [&](auto value) { out.append(reinterpret_cast<const char *>(&value), sizeof(value)); };
    const auto number = [&](std::uint32_t value) { add(value); };
    number(1);
    number(3);
    for (std::uint64_t chunk = 1; chunk <= 3; ++chunk) {
        add(chunk << 32U);
        number(4096);
    }
    number(1);
    number(4);
    out += "id-1";
    number(2);
    for (const std::uint32_t run : {0U, 1U, 2U, 1U})
        number(run);
    return text_of(with_right_hash(out + std::string(store::Hash::kSize, 'h')));
}

bool reads_account(std::string_view bytes) {
    auto account = store::Account::decode(with_right_hash(bytes));
    if (!account)
        return false;
    static_cast<void>(account->bytes_added_by(manifest_of(1)));
    const auto again = store::Account::decode(account->encode());
    expect(again && again->bytes() == account->bytes() && again->checkpoints() == account->checkpoints(),
           "an account is read as it was written");
    expect(account->refresh(*place().space).has_value() && account->checkpoints() == 0 &&
               account->bytes() == 0,
           "an account follows what is there");
    return true;
}

constexpr std::size_t kHashLine = 5 + 2 * store::Hash::kSize + 1; // "hash ...\n"

std::string round_of(std::string_view body) {
    return fmt::format("{}hash {}\n", body, store::hash_of(std::as_bytes(std::span(body))).hex());
}

bool reads_round(std::string_view bytes) {
    const auto text = round_of(bytes.substr(0, bytes.size() - std::min(bytes.size(), kHashLine)));
    auto file = place().space->rounds.create_file("round-1");
    expect(file && store::write_all(*file, std::as_bytes(std::span(text)), 0, "memory"),
           "a round can be written");
    const auto rounds = store::read_rounds(*place().space);
    expect(place().space->rounds.remove("round-1").value_or(false), "a round can be removed");
    expect(rounds && rounds->whole.size() + rounds->damaged.size() == 1, "a round is whole or damaged");
    return !rounds->whole.empty();
}

const Data &content() {
    static const Data kContent(9000, std::byte{'a'});
    return kContent;
}

std::string good_chunk(int level) {
    store::Scratch scratch;
    const auto chunk = store::encode_chunk(content(), level, scratch);
    expect(chunk.has_value(), "a chunk can be encoded");
    return text_of(chunk->header) + text_of(chunk->payload);
}

bool reads_chunk(std::string_view bytes) {
    static store::Scratch scratch;
    auto &directory = place().space->damaged;
    auto file = directory.create_file("chunk");
    expect(file && store::write_all(*file, std::as_bytes(std::span(bytes)), 0, "memory"),
           "a chunk can be written");
    const auto checked = store::check_chunk_file(directory, "chunk", store::hash_of(content()), scratch);
    expect(directory.remove("chunk").value_or(false), "a chunk can be removed");
    return checked.has_value();
}

bool reads_protection(std::string_view bytes) {
    const auto protection = Protection::parse(bytes, "protection");
    if (!protection)
        return false;
    expect(Protection::parse(protection->write(), "protection") == *protection,
           "a file is read as it was written");
    for (const auto job : {0U, 7U, ~0U}) {
        static_cast<void>(protection->spared_for(job, 1));
        static_cast<void>(protection->covers(job));
    }
    return true;
}

std::string good_ledgers() {
    slurm::Job job;
    job.id = 7;
    job.running = true;
    job.shares = {{.node = "n1", .gpus = 2}};
    planner::Records records;
    records.look({&job, 1}, 1'000'000);
    expect(records.size() == 1, "a job that runs has a record");
    return records.write();
}

bool reads_ledgers(std::string_view bytes) {
    planner::Records records;
    return records.read(bytes, "ledgers").has_value() && records.write().size() == bytes.size();
}

} // namespace

std::vector<Parser> parsers() {
    return {
        {.name = "manifest", .reads = &reads_manifest, .good = {good_manifest(0), good_manifest(3)}},
        {.name = "nodes",
         .reads = &reads_nodes,
         .good = {text_of(store::encode_nodes(manifest_of(2).nodes))}},
        {.name = "account", .reads = &reads_account, .good = {good_account()}},
        {.name = "round",
         .reads = &reads_round,
         .good = {round_of("slurm-singularity garbage collection 1\nsettling\nlease read-1\nfile ab.cd\n")}},
        {.name = "chunk", .reads = &reads_chunk, .good = {good_chunk(0), good_chunk(1)}},
        {.name = "protection",
         .reads = &reads_protection,
         .good =
             {Protection{.until = 9, .newest = 9, .served = {1, 2}, .waiting = {3}, .covered = {}}.write()}},
        {.name = "ledgers", .reads = &reads_ledgers, .good = {good_ledgers(), planner::Records().write()}},
    };
}

} // namespace singularity::test
