// SPDX-License-Identifier: GPL-2.0-or-later
#include "picture.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

namespace singularity::simulator {
namespace {

// Okabe and Ito's colours, told apart by people who see few.
constexpr std::array<std::string_view, 6> kColours{"#0072b2", "#d55e00", "#009e73",
                                                   "#cc79a7", "#e69f00", "#56b4e9"};
constexpr std::string_view kGrey = "#555555";

constexpr double kWidth = 460;
constexpr double kHeight = 300;
constexpr double kLeft = 66;
constexpr double kTop = 34;
constexpr double kPanelWidth = kWidth + kLeft + 24;
constexpr double kLegendLine = 18;

std::string escaped_xml(std::string_view text) {
    std::string out;
    for (const char c : text) {
        switch (c) {
        case '<':
            out += "&lt;";
            break;
        case '&':
            out += "&amp;";
            break;
        default:
            out += c;
        }
    }
    return out;
}

// 1, 2 or 5 times a power of ten: at most `most` of them in the range.
std::vector<double> ticks(double least, double most, int count) {
    const double rough = (most - least) / count;
    const double power = std::pow(10, std::floor(std::log10(rough)));
    double step = power;
    for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
        step = factor * power;
        if (step >= rough)
            break;
    }
    std::vector<double> result;
    for (double at = std::ceil(least / step) * step; at <= most + step * 1e-6; at += step)
        result.push_back(std::abs(at) < step * 1e-6 ? 0 : at);
    return result;
}

class Drawing {
  public:
    Drawing(std::string &out, const Panel &panel, double x) : out_(out), panel_(panel), x_(x) {}

    void draw() {
        frame();
        for (const Line &line : panel_.lines)
            draw(line);
    }

  private:
    [[nodiscard]] double across(double value) const {
        double share = (value - panel_.x_least) / (panel_.x_most - panel_.x_least);
        if (panel_.logarithmic_x)
            share = std::log(std::max(value, panel_.x_least) / panel_.x_least) /
                    std::log(panel_.x_most / panel_.x_least);
        return x_ + kLeft + (std::clamp(share, 0.0, 1.0) * kWidth);
    }
    [[nodiscard]] double down(double value) const {
        const double share = (value - panel_.y_least) / (panel_.y_most - panel_.y_least);
        return kTop + ((1 - std::clamp(share, 0.0, 1.0)) * kHeight);
    }

    template <class... Arguments>
    void put(fmt::format_string<Arguments...> format, Arguments &&...arguments) {
        fmt::format_to(std::back_inserter(out_), format, std::forward<Arguments>(arguments)...);
    }
    void text(double x, double y, std::string_view anchor, std::string_view words) {
        put("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
            escaped_xml(words));
    }

    void frame() {
        const double bottom = kTop + kHeight;
        std::vector<double> x_ticks;
        if (panel_.logarithmic_x) {
            for (double at = panel_.x_least; at <= panel_.x_most * 1.000001; at *= 10)
                x_ticks.push_back(at);
        } else {
            x_ticks = ticks(panel_.x_least, panel_.x_most, 6);
        }
        for (const double at : x_ticks) {
            put("<path d=\"M{:.1f} {:.1f}V{:.1f}\" stroke=\"#dddddd\"/>\n", across(at), kTop, bottom);
            text(across(at), bottom + 16, "middle", fmt::format("{:g}", at));
        }
        for (const double at : ticks(panel_.y_least, panel_.y_most, 6)) {
            put("<path d=\"M{:.1f} {:.1f}H{:.1f}\" stroke=\"#dddddd\"/>\n", x_ + kLeft, down(at),
                x_ + kLeft + kWidth);
            text(x_ + kLeft - 6, down(at) + 4, "end", fmt::format("{:g}", at));
        }
        put("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"{}\"/>\n",
            x_ + kLeft, kTop, kWidth, kHeight, kGrey);
        text(x_ + kLeft + (kWidth / 2), kTop - 12, "middle", panel_.title);
        text(x_ + kLeft + (kWidth / 2), bottom + 34, "middle", panel_.x_name);
        put("<text transform=\"translate({:.1f} {:.1f}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
            x_ + 14, kTop + (kHeight / 2), escaped_xml(panel_.y_name));
    }

    void draw(const Line &line) {
        if (line.points.empty())
            return;
        put(R"(<polyline fill="none" stroke="{}" stroke-width="1.5"{} points=")", line.colour,
            line.dashed ? R"( stroke-dasharray="5 4")" : "");
        for (const auto &[x, y] : line.points)
            put("{:.1f},{:.1f} ", across(x), down(y));
        put("\"/>\n");
    }

    std::string &out_;
    const Panel &panel_;
    double x_;
};

std::string colour_of(std::size_t policy) { return std::string(kColours[policy % kColours.size()]); }

std::vector<std::pair<double, double>> days(const Statistics &result, const std::vector<double> &series) {
    std::vector<std::pair<double, double>> points;
    points.reserve(series.size());
    for (std::size_t i = 0; i < series.size(); ++i)
        points.emplace_back((static_cast<double>(i) + 0.5) * result.step_hours / 24, series[i]);
    return points;
}

} // namespace

std::string svg_of(std::span<const Panel> panels) {
    std::size_t named = 0;
    for (const Panel &panel : panels)
        named = std::max(named, static_cast<std::size_t>(std::ranges::count_if(
                                    panel.lines, [](const Line &line) { return !line.name.empty(); })));
    const double legend = kTop + kHeight + 58;
    std::string out = fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" "
                                  "height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
                                  "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" "
                                  "height=\"100%\" fill=\"white\"/>\n",
                                  kPanelWidth * static_cast<double>(panels.size()),
                                  legend + (kLegendLine * static_cast<double>(named)));
    double x = 0;
    for (const Panel &panel : panels) {
        Drawing(out, panel, x).draw();
        double y = legend;
        for (const Line &line : panel.lines) {
            if (line.name.empty())
                continue;
            fmt::format_to(std::back_inserter(out),
                           "<path d=\"M{:.1f} {:.1f}h28\" stroke=\"{}\" stroke-width=\"2\"{}/>\n<text "
                           "x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
                           x + kLeft, y - 4, line.colour, line.dashed ? " stroke-dasharray=\"5 4\"" : "",
                           x + kLeft + 36, y, escaped_xml(line.name));
            y += kLegendLine;
        }
        x += kPanelWidth;
    }
    return out + "</svg>\n";
}

std::vector<std::pair<double, double>> cumulative(const std::vector<double> &values) {
    constexpr std::size_t kSteps = 400;
    std::vector<std::pair<double, double>> points;
    const std::size_t count = values.size();
    for (std::size_t step = 1; step <= kSteps && count > 0; ++step) {
        const std::size_t rank = std::max<std::size_t>(1, count * step / kSteps);
        points.emplace_back(values[rank - 1], static_cast<double>(rank) / static_cast<double>(count));
    }
    return points;
}

std::string utilisation_picture(std::span<const Statistics> results) {
    Panel panel{.title = "GPUs in use while jobs are submitted", .x_name = "days", .y_name = "GPUs"};
    if (results.empty())
        return svg_of({});
    const Statistics &first = results.front();
    panel.x_most = std::max(first.step_hours / 24 * static_cast<double>(first.up_series.size()), 1e-3);
    panel.y_most = std::max(1.0, static_cast<double>(first.gpus) * 1.05);
    panel.lines.push_back(
        {"GPUs of nodes that work", std::string(kGrey), true, days(first, first.up_series)});
    for (std::size_t i = 0; i < results.size(); ++i)
        panel.lines.push_back(
            {results[i].policy, colour_of(i), false, days(results[i], results[i].held_series)});
    return svg_of(std::span(&panel, 1));
}

std::string completion_picture(std::span<const Statistics> results) {
    Panel panel{.title = "Completion time of jobs",
                .x_name = "hours from submission to end",
                .y_name = "share of jobs",
                .logarithmic_x = true,
                .x_least = 0.01,
                .x_most = 1};
    for (std::size_t i = 0; i < results.size(); ++i) {
        auto points = cumulative(results[i].completions);
        for (auto &[seconds, share] : points)
            seconds /= 3600;
        if (!points.empty())
            panel.x_most = std::max(panel.x_most, std::pow(10, std::ceil(std::log10(points.back().first))));
        panel.lines.push_back({results[i].policy, colour_of(i), false, std::move(points)});
    }
    return svg_of(std::span(&panel, 1));
}

std::string fraction_picture(std::span<const Statistics> results) {
    std::vector<Panel> panels;
    for (std::size_t tier = 0; tier < kTiers; ++tier) {
        Panel panel{.title = std::string(kTierNames[tier]),
                    .x_name = "GPU fraction over the job's life",
                    .y_name = "share of jobs not above it"};
        for (std::size_t i = 0; i < results.size(); ++i) {
            panel.lines.push_back(
                {results[i].policy, colour_of(i), false, cumulative(results[i].tiers[tier].fractions)});
        }
        if (!results.empty() && results.front().tiers[tier].guarantee > 0) {
            const double guarantee = results.front().tiers[tier].guarantee;
            panel.lines.push_back({"guarantee", std::string(kGrey), true, {{guarantee, 0}, {guarantee, 1}}});
        }
        panels.push_back(std::move(panel));
    }
    return svg_of(panels);
}

Expected<void> write_file(const std::filesystem::path &path, const std::string &text) {
    std::ofstream stream(path, std::ios::binary | std::ios::trunc);
    stream << text;
    stream.close();
    if (!stream)
        return std::unexpected(errno_error("write", path.string()));
    return {};
}

Expected<void> write_pictures(const std::filesystem::path &folder, std::span<const Statistics> results) {
    std::error_code code;
    std::filesystem::create_directories(folder, code);
    if (code)
        return failure("make the folder", folder.string(), code.message(), code.value());
    const std::array<std::pair<std::string_view, std::string>, 3> pictures{
        {{"utilisation.svg", utilisation_picture(results)},
         {"completion.svg", completion_picture(results)},
         {"fraction.svg", fraction_picture(results)}}};
    for (const auto &[name, picture] : pictures) {
        if (auto written = write_file(folder / name, picture); !written)
            return written;
    }
    return {};
}

} // namespace singularity::simulator
