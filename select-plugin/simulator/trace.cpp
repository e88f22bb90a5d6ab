// SPDX-License-Identifier: GPL-2.0-or-later
#include "trace.hpp"

#include "common/text.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <memory>
#include <numeric>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#ifdef SINGULARITY_WITH_ZSTD
#include <zstd.h>
#endif

namespace singularity::simulator {
namespace {

// What a column may hold. Limits keep every sum of the simulation inside its type: a century, a million GPUs.
struct Column {
    std::string_view name;
    std::int64_t least;
    std::int64_t most;
};
constexpr std::int64_t kCentury = 3'155'760'000;
constexpr std::array<Column, 4> kColumns{{{"job_id", 0, std::numeric_limits<std::int64_t>::max()},
                                          {"submit_s", 0, kCentury},
                                          {"gpus", 1, 1'000'000},
                                          {"duration_s", 1, kCentury}}};
constexpr std::size_t kTierColumn = kColumns.size();
constexpr std::uintmax_t kMostTraceBytes = std::uintmax_t{1} << 32U;

std::unexpected<Error> bad(std::string_view file, std::size_t line, std::string why) {
    return failure("read", fmt::format("{}:{}", file, line), std::move(why));
}

std::optional<std::int64_t> whole_number(std::string_view text) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size())
        return std::nullopt;
    return value;
}

// The fields of one line; a quoted field is not expected in a table of numbers and is refused as a number.
void split(std::string_view line, std::vector<std::string_view> &fields) {
    fields.clear();
    for (std::size_t begin = 0;;) {
        const auto comma = line.find(',', begin);
        fields.push_back(line.substr(begin, comma - begin));
        if (comma == std::string_view::npos)
            return;
        begin = comma + 1;
    }
}

class Table {
  public:
    Table(std::string_view text, std::string_view file) : rest_(text), file_(file) {}

    Expected<std::vector<TraceJob>> read() {
        if (auto found = read_header(); !found)
            return propagate(found);
        std::vector<TraceJob> jobs;
        while (next_line()) {
            if (fields_.size() == 1 && fields_.front().empty())
                continue; // an empty line
            auto job = take_job();
            if (!job)
                return propagate(job);
            jobs.push_back(*job);
        }
        if (jobs.empty())
            return bad(file_, line_, "expected at least one job behind the header, found none");
        std::ranges::stable_sort(jobs, {}, &TraceJob::submit);
        return jobs;
    }

  private:
    bool next_line() {
        if (rest_.empty())
            return false;
        const auto end = rest_.find('\n');
        std::string_view line = rest_.substr(0, end);
        rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
        if (line.ends_with('\r'))
            line.remove_suffix(1);
        split(line, fields_);
        ++line_;
        return true;
    }

    Expected<void> read_header() {
        if (!next_line())
            return bad(file_, 1,
                       "expected a header line with job_id,submit_s,gpus,duration_s, found nothing");
        columns_ = fields_.size();
        const auto position = [this](std::string_view name) -> std::optional<std::size_t> {
            const auto found = std::ranges::find(fields_, name);
            if (found == fields_.end())
                return std::nullopt;
            return static_cast<std::size_t>(found - fields_.begin());
        };
        for (std::size_t i = 0; i < kColumns.size(); ++i) {
            const auto at = position(kColumns[i].name);
            if (!at) {
                return bad(file_, line_,
                           fmt::format("expected a column {} in the header, found {}; name the columns as in "
                                       "job_id,submit_s,gpus,duration_s",
                                       kColumns[i].name, quote(fmt::format("{}", fmt::join(fields_, ",")))));
            }
            at_[i] = *at;
        }
        tier_at_ = position("tier");
        return {};
    }

    Expected<TraceJob> take_job() {
        if (fields_.size() != columns_) {
            return bad(
                file_, line_,
                fmt::format("expected {} fields as in the header, found {}", columns_, fields_.size()));
        }
        std::array<std::int64_t, kColumns.size()> values{};
        for (std::size_t i = 0; i < kColumns.size(); ++i) {
            const std::string_view text = fields_[at_[i]];
            const auto value = whole_number(text);
            if (!value || *value < kColumns[i].least || *value > kColumns[i].most) {
                return bad(file_, line_,
                           fmt::format("{}: expected a whole number from {} to {}, found {}",
                                       kColumns[i].name, kColumns[i].least, kColumns[i].most, quote(text)));
            }
            values[i] = *value;
        }
        std::optional<Tier> tier;
        if (tier_at_) {
            const std::string_view text = fields_[*tier_at_];
            const auto *const found = std::ranges::find(kTierNames, text);
            if (found == kTierNames.end()) {
                return bad(
                    file_, line_,
                    fmt::format("tier: expected one of premium, standard, basic, found {}", quote(text)));
            }
            tier = static_cast<Tier>(found - kTierNames.begin());
        }
        return TraceJob{values[0], values[1] * kSecond, values[3] * kSecond,
                        static_cast<std::int32_t>(values[2]), tier};
    }

    std::string_view rest_;
    std::string_view file_;
    std::size_t line_ = 0;
    std::vector<std::string_view> fields_;
    std::size_t columns_ = 0;
    std::array<std::size_t, kTierColumn> at_{};
    std::optional<std::size_t> tier_at_;
};

constexpr std::string_view kZstdMagic = "\x28\xb5\x2f\xfd";

#ifdef SINGULARITY_WITH_ZSTD
Expected<std::string> decompressed(std::string_view packed, const std::string &name) {
    const std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> context(ZSTD_createDCtx(), &ZSTD_freeDCtx);
    if (!context)
        return failure("decompress", name, "out of memory", ENOMEM);
    std::string text;
    std::vector<char> part(ZSTD_DStreamOutSize());
    ZSTD_inBuffer in{packed.data(), packed.size(), 0};
    for (std::size_t expected = 1; in.pos < in.size || expected != 0;) {
        ZSTD_outBuffer out{part.data(), part.size(), 0};
        const std::size_t before = in.pos;
        expected = ZSTD_decompressStream(context.get(), &out, &in);
        if (ZSTD_isError(expected) != 0U)
            return failure("decompress", name,
                           fmt::format("{}; the file is damaged", ZSTD_getErrorName(expected)));
        if (out.pos == 0 && in.pos == before)
            return failure("decompress", name, "it ends too early; the file is damaged");
        text.append(part.data(), out.pos);
        if (text.size() > kMostTraceBytes)
            return failure("decompress", name,
                           fmt::format("expected at most {} bytes of text", kMostTraceBytes));
    }
    return text;
}
#else
Expected<std::string> decompressed(std::string_view /*packed*/, const std::string &name) {
    return failure(
        "read", name,
        "it is compressed with zstd, and this program was built without it; decompress it with `zstd -d`");
}
#endif

} // namespace

Expected<std::vector<TraceJob>> parse_trace(std::string_view text, std::string_view file_name) {
    return Table(text, file_name).read();
}

Expected<std::vector<TraceJob>> read_trace(const std::filesystem::path &path) {
    const std::string name = path.string();
    std::error_code code;
    const auto size = std::filesystem::file_size(path, code);
    if (code)
        return failure("read", name, code.message(), code.value());
    if (size > kMostTraceBytes)
        return failure("read", name,
                       fmt::format("expected at most {} bytes, found {}", kMostTraceBytes, size));
    std::ifstream stream(path, std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
    if (!stream)
        return failure("read", name, "the file could not be read");
    if (text.starts_with(kZstdMagic)) {
        auto plain = decompressed(text, name);
        if (!plain)
            return propagate(plain);
        text = std::move(*plain);
    }
    return parse_trace(text, name);
}

Expected<Scale> parse_scale(std::string_view text) {
    const auto cross = text.find('x');
    const auto gang = whole_number(text.substr(0, cross));
    const auto copies = cross == std::string_view::npos ? std::optional<std::int64_t>(1)
                                                        : whole_number(text.substr(cross + 1));
    if (!gang || !copies || *gang < 1 || *gang > 1000 || *copies < 1 || *copies > 1000) {
        return failure("read the scale", quote(text),
                       "expected GANGxCOPIES with whole numbers from 1 to 1000, as in 8x11");
    }
    return Scale{static_cast<std::int32_t>(*gang), static_cast<std::int32_t>(*copies)};
}

std::vector<TraceJob> scaled(const std::vector<TraceJob> &jobs, Scale scale) {
    const Time span = jobs.empty() ? 1 : jobs.back().submit + kSecond;
    std::vector<TraceJob> all;
    all.reserve(jobs.size() * static_cast<std::size_t>(scale.copies));
    for (std::int32_t copy = 0; copy < scale.copies; ++copy) {
        // Whole seconds, as in the trace.
        const Time shift = span / scale.copies * copy / kSecond * kSecond;
        for (TraceJob job : jobs) {
            job.id = job.id * scale.copies + copy;
            job.submit = (job.submit + shift) % span;
            job.gpus *= scale.gang;
            all.push_back(job);
        }
    }
    std::ranges::sort(all, [](const TraceJob &a, const TraceJob &b) {
        return std::pair(a.submit, a.id) < std::pair(b.submit, b.id);
    });
    return all;
}

std::int64_t peak_demand(const std::vector<TraceJob> &jobs) {
    std::vector<std::pair<Time, std::int64_t>> changes;
    changes.reserve(jobs.size() * 2);
    for (const TraceJob &job : jobs) {
        changes.emplace_back(job.submit, job.gpus);
        changes.emplace_back(job.submit + job.duration, -job.gpus);
    }
    std::ranges::sort(changes); // an end before a beginning at the same time
    std::int64_t held = 0;
    std::int64_t peak = 0;
    for (const auto &[when, gpus] : changes)
        peak = std::max(peak, held += gpus);
    return peak;
}

} // namespace singularity::simulator
