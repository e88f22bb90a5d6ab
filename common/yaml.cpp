// SPDX-License-Identifier: GPL-2.0-or-later
#include "yaml.hpp"

#include "common/text.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <fmt/core.h>
#include <yaml.h>

namespace singularity::yaml {
namespace {

class Event {
  public:
    Event() = default;
    Event(const Event &) = delete;
    Event &operator=(const Event &) = delete;
    Event(Event &&) = delete;
    Event &operator=(Event &&) = delete;
    ~Event() { yaml_event_delete(&event_); }

    yaml_event_t *get() { return &event_; }
    const yaml_event_t *operator->() const { return &event_; }

  private:
    yaml_event_t event_{};
};

class Parser {
  public:
    explicit Parser(std::string_view text) : ready_(yaml_parser_initialize(&parser_) != 0) {
        if (!ready_)
            return;
        // Said beforehand, or libyaml takes a file with a byte order mark for UTF-16.
        yaml_parser_set_encoding(&parser_, YAML_UTF8_ENCODING);
        // libyaml's bytes are unsigned
        yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char *>(text.data()),
                                     text.size());
    }
    Parser(const Parser &) = delete;
    Parser &operator=(const Parser &) = delete;
    Parser(Parser &&) = delete;
    Parser &operator=(Parser &&) = delete;
    ~Parser() {
        if (ready_)
            yaml_parser_delete(&parser_);
    }

    [[nodiscard]] bool ready() const { return ready_; }
    bool next(Event &event) { return yaml_parser_parse(&parser_, event.get()) != 0; }
    const yaml_parser_t *operator->() const { return &parser_; }

  private:
    yaml_parser_t parser_{};
    bool ready_;
};

std::string_view view(const yaml_char_t *text, std::size_t size) {
    // libyaml's bytes are unsigned
    return {reinterpret_cast<const char *>(text), size};
}

std::size_t line_of(const yaml_mark_t &mark) { return mark.line + 1; }

// Why what an event carries besides its content is refused; empty if it carries nothing.
std::string_view refused_decoration(const yaml_event_t &event) {
    const auto refused = [](const auto &node) -> std::string_view {
        if (node.anchor != nullptr)
            return "an anchor (&) is not allowed; write the value where it is needed";
        return node.tag != nullptr ? "a tag (!) is not allowed; write the value alone" : "";
    };
    switch (event.type) {
    case YAML_ALIAS_EVENT:
        return "an alias (*) is not allowed; write the value itself, in quotes if it starts with *";
    case YAML_SCALAR_EVENT:
        return refused(event.data.scalar);
    case YAML_MAPPING_START_EVENT:
        return refused(event.data.mapping_start);
    case YAML_SEQUENCE_START_EVENT:
        return refused(event.data.sequence_start);
    default:
        return "";
    }
}

class Reader {
  public:
    Reader(std::string_view text, std::string_view file_name)
        : text_(text), file_name_(file_name), parser_(text) {}

    Expected<std::vector<Node>> read() {
        if (!parser_.ready())
            return failure("read", std::string(file_name_), "libyaml could not be started: out of memory");
        for (bool more = true; more;) {
            Event event;
            if (!parser_.next(event))
                return std::unexpected(syntax_error());
            auto taken = take(*event.get());
            if (!taken)
                return propagate(taken);
            more = *taken;
        }
        return std::move(nodes_);
    }

  private:
    // A mapping that has been opened and not yet closed.
    struct Open {
        std::string name; // empty at the top
        std::map<std::string, std::size_t, std::less<>> lines;
    };
    struct Key {
        std::string name;
        std::string text;
        std::size_t line;
    };

    // Whether there is more to read.
    Expected<bool> take(const yaml_event_t &event) {
        const std::size_t line = line_of(event.start_mark);
        if (const auto refused = refused_decoration(event); !refused.empty())
            return std::unexpected(error(line, refused));
        switch (event.type) {
        case YAML_STREAM_END_EVENT:
            return false;
        case YAML_DOCUMENT_START_EVENT:
            return start_document(event, line);
        case YAML_SCALAR_EVENT:
            return take_scalar(event, line);
        case YAML_MAPPING_START_EVENT:
            return start_mapping(line);
        case YAML_MAPPING_END_EVENT:
            open_.pop_back();
            return true;
        case YAML_SEQUENCE_START_EVENT:
            return start_sequence(line);
        default: // start of stream, end of document; nothing is read behind the start of a sequence
            return true;
        }
    }

    Expected<bool> start_document(const yaml_event_t &event, std::size_t line) {
        if (std::exchange(document_seen_, true))
            return std::unexpected(
                error(line, "a second document (---) is not allowed; expected one per file"));
        const auto &start = event.data.document_start;
        if (start.version_directive != nullptr || start.tag_directives.start != start.tag_directives.end)
            return std::unexpected(error(line, "a directive (%) is not allowed; remove it"));
        return true;
    }

    Expected<bool> take_scalar(const yaml_event_t &event, std::size_t line) {
        const auto &scalar = event.data.scalar;
        const bool quoted_style = scalar.style != YAML_PLAIN_SCALAR_STYLE;
        const std::string_view text = view(scalar.value, scalar.length);
        if (open_.empty()) {
            // "---" alone, or nothing but a null, is an empty document.
            if (!quoted_style && (text.empty() || text == "~" || text == "null"))
                return true;
            return std::unexpected(error(
                line, fmt::format("expected settings of the form 'key: value', found {}", quote(text))));
        }
        if (!key_)
            return take_key(text, line);
        add_node(*key_, Node::Kind::kScalar, std::string(text), quoted_style);
        return true;
    }

    Expected<bool> take_key(std::string_view text, std::size_t line) {
        Open &mapping = open_.back();
        std::string name =
            mapping.name.empty() ? std::string(text) : fmt::format("{}.{}", mapping.name, text);
        const auto [earlier, first] = mapping.lines.emplace(text, line);
        if (!first) {
            return std::unexpected(
                error_at(file_name_, line, name,
                         fmt::format("expected each key once, found it a second time (first in line {})",
                                     earlier->second)));
        }
        key_ = Key{std::move(name), std::string(text), line};
        return true;
    }

    Expected<bool> start_mapping(std::size_t line) {
        if (open_.size() == kMaxDepth)
            return std::unexpected(error(line, fmt::format("nested more than {} levels deep", kMaxDepth)));
        if (open_.empty()) {
            open_.emplace_back();
            return true;
        }
        if (!key_)
            return std::unexpected(error(line, "expected a name as key, found a mapping"));
        std::string name = key_->name;
        add_node(*key_, Node::Kind::kMapping, {}, false);
        open_.push_back({std::move(name), {}});
        return true;
    }

    Expected<bool> start_sequence(std::size_t line) {
        if (open_.empty())
            return std::unexpected(error(line, "expected settings of the form 'key: value', found a list"));
        if (!key_)
            return std::unexpected(error(line, "expected a name as key, found a list"));
        add_node(*key_, Node::Kind::kSequence, {}, false);
        return false;
    }

    // Takes the key that has been waiting for its value.
    void add_node(Key &key, Node::Kind kind, std::string text, bool quoted_style) {
        nodes_.push_back(
            {std::move(key.name), std::move(key.text), key.line, kind, std::move(text), quoted_style});
        key_.reset();
    }

    // An error of the text as such: names the key at or behind which it is.
    [[nodiscard]] Error error(std::size_t line, std::string_view why) const {
        if (key_)
            return error_at(file_name_, line, key_->name, why);
        return error_at(file_name_, line, "",
                        nodes_.empty() ? std::string(why)
                                       : fmt::format("after {}: {}", nodes_.back().name, why));
    }

    [[nodiscard]] Error syntax_error() const {
        const std::string problem = parser_->problem != nullptr ? parser_->problem : "no reason given";
        if (parser_->error == YAML_MEMORY_ERROR)
            return {"read", std::string(file_name_), "out of memory", ENOMEM};
        if (parser_->error == YAML_READER_ERROR) {
            // libyaml reads ahead: only the offset says where these bytes are.
            const std::size_t offset = std::min(parser_->problem_offset, text_.size());
            const auto line = 1 + std::ranges::count(text_.substr(0, offset), '\n');
            return error_at(
                file_name_, static_cast<std::size_t>(line), "",
                fmt::format("expected UTF-8 text, found byte 0x{:02x} at offset {}: {}",
                            static_cast<unsigned char>(offset < text_.size() ? text_[offset] : '\0'), offset,
                            problem));
        }
        const std::string context = parser_->context != nullptr ? fmt::format(" ({})", parser_->context) : "";
        return error(line_of(parser_->problem_mark), fmt::format("not valid YAML: {}{}", problem, context));
    }

    std::string_view text_;
    std::string_view file_name_;
    Parser parser_;
    std::vector<Node> nodes_;
    std::vector<Open> open_;
    std::optional<Key> key_; // read, its value not yet
    bool document_seen_ = false;
};

} // namespace

Error error_at(std::string_view file_name, std::size_t line, std::string_view key, std::string_view why) {
    return {"read", fmt::format("{}:{}", file_name, line),
            key.empty() ? std::string(why) : fmt::format("{}: {}", escaped(key), why), 0};
}

Expected<std::vector<Node>> read(std::string_view text, std::string_view file_name) {
    if (text.size() > kMaxBytes) {
        return failure("read", std::string(file_name),
                       fmt::format("expected at most {} bytes, found {}", kMaxBytes, text.size()), EFBIG);
    }
    return Reader(text, file_name).read();
}

} // namespace singularity::yaml
