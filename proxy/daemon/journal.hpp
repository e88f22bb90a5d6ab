// SPDX-License-Identifier: GPL-2.0-or-later
// The calls of one session that have made what it has now, in their order: carried out again they make it
// anew. Memory's content is not here.
//
// A call stays as long as something that it has made or changed is there, or is needed by another call that
// stays (a module that was unloaded, by a graph that launches its functions); then the call that ended it
// stays as well. Everything else is forgotten, so that a program which makes and ends things for days has a
// journal as long as what it has at the end. Nodes count as parts of their graph.
#pragma once

#include "blobs.hpp"
#include "journal_rules.hpp"
#include "trace.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace singularity::proxyd {

struct JournalCall {
    std::uint64_t context = 0;
    std::vector<std::byte> message;
    std::vector<std::uint64_t> names; // that its outputs had, in order
    std::shared_ptr<const Blob> code; // of messages that name a blob
};

struct JournalEntry {
    std::vector<JournalCall> calls; // several: a capture from its begin to its end
    bool of_graphs = false;         // graphs have to do with it
    bool ends = false;
};

// A variable whose address the client knows.
struct SeenVariable {
    std::uint64_t owner = 0; // module or library
    bool managed = false;
    std::string name;
    auto operator<=>(const SeenVariable &) const = default;
};

// Any thread of the session may use it.
class Journal {
  public:
    // A call that the driver has carried out. trace: what it had to do with.
    void record(const JournalRule &rule, JournalCall call, const Trace &trace);

    // Between a capture's begin and end: calls that belong to the capture with this number. `whole`: it has
    // ended and made trace.made; an end without anything made forgets them.
    void begin_capture(std::uint64_t capture, JournalCall call, const Trace &trace);
    void add_to_capture(std::uint64_t capture, JournalCall call, const Trace &trace);
    void end_capture(std::uint64_t capture, JournalCall call, const Trace &trace, bool made);

    void seen(SeenVariable variable);
    [[nodiscard]] bool is_seen(const SeenVariable &variable) const;
    [[nodiscard]] std::vector<SeenVariable> all_seen() const;

    // All entries, in order. Nothing may be recorded in the meantime.
    [[nodiscard]] std::vector<const JournalEntry *> entries() const;
    [[nodiscard]] std::size_t size() const;

  private:
    using ObjectId = std::uint64_t; // 0: none
    using Sequence = std::uint64_t;
    using Key = std::tuple<std::uint32_t, ObjectId, std::string>;

    struct Object {
        std::uint64_t handle = 0;
        bool alive = true;
        std::uint64_t users = 0;    // entries that use it and are not its own
        Sequence last_use = 0;      // by a call that is no change
        std::set<Sequence> entries; // that have made or changed it
    };
    struct Kept {
        JournalEntry entry;
        std::vector<ObjectId> makes;
        std::vector<ObjectId> uses;
        ObjectId target = 0;
        std::optional<Key> key;
    };
    struct DeferredEnd {
        JournalEntry entry;
        ObjectId object = 0;
    };
    struct Capture {
        JournalEntry entry;
        Trace trace;
        std::uint64_t context = 0;
        // What it has used, which it keeps until its own entry does: a program may end a stream or an event
        // that has its part in a capture before the capture ends. Such ends come behind the capture.
        std::set<ObjectId> held;
        std::vector<DeferredEnd> ends;
    };

    // With lock_ held.
    // target: what a change is one of; 0: target_of(). held: objects that it uses, whose handles may have
    // gone.
    void record_entry(const JournalRule &rule, JournalEntry entry, const Trace &trace, std::uint64_t context,
                      ObjectId target = 0, const std::set<ObjectId> &held = {});
    void hold(Capture &capture, const Trace &trace);
    void record_capture(Capture &whole, JournalCall call, const Trace &trace);
    void finish_capture(Capture capture);
    void keep_end(DeferredEnd end);
    [[nodiscard]] ObjectId find(std::uint64_t handle) const;
    [[nodiscard]] ObjectId root_of(const Trace &trace) const;
    [[nodiscard]] ObjectId target_of(const Trace &trace, std::uint64_t context) const;
    [[nodiscard]] ObjectId make(std::uint64_t handle);
    void end(const JournalRule &rule, JournalEntry entry, const Trace &trace);
    [[nodiscard]] bool needed(ObjectId object) const;
    void sweep(std::vector<ObjectId> objects);
    void drop(Sequence sequence, std::vector<ObjectId> &loose);

    mutable std::mutex lock_;
    std::map<Sequence, Kept> kept_;
    std::unordered_map<ObjectId, Object> objects_;
    std::unordered_map<std::uint64_t, ObjectId> current_; // handles of living objects
    std::unordered_map<std::uint64_t, ObjectId> parts_;   // nodes and graphs in graphs: their graph
    std::map<Key, Sequence> keys_;
    std::map<std::uint64_t, Capture> captures_;
    std::set<SeenVariable> seen_;
    ObjectId next_object_ = 1;
    Sequence next_ = 1;
};

} // namespace singularity::proxyd
