// SPDX-License-Identifier: GPL-2.0-or-later
// Writes a checkpoint of one image, standard input, for tests of the commands; prints its id.
//     store-writer STORE UID JOB [PARENT]
#include "criu-hooks/store/store.hpp"

#include <cstdlib>
#include <iostream>
#include <iterator>
#include <string>

namespace {

using namespace singularity;

Expected<std::string> write(const store::Store &opened, const store::Request &request,
                            const std::string &content) {
    auto writer = opened.begin(request);
    if (!writer)
        return propagate(writer);
    auto image = writer->image({"node0", "", "pages"});
    if (!image)
        return propagate(image);
    auto done = image->append(std::as_bytes(std::span(content)));
    if (done)
        done = image->finish();
    if (!done)
        return propagate(done);
    auto manifest = writer->commit();
    if (!manifest)
        return propagate(manifest);
    return manifest->id;
}

} // namespace

int main(int argc, char **argv) {
    if (argc < 4) {
        std::cerr << "usage: store-writer STORE UID JOB [PARENT]\n";
        return EXIT_FAILURE;
    }
    const std::string content((std::istreambuf_iterator<char>(std::cin)), {});
    store::Options options;
    options.create = true;
    const auto opened = store::Store::open(argv[1], options);
    store::Request request;
    request.uid = static_cast<uid_t>(std::strtoul(argv[2], nullptr, 10));
    request.gid = request.uid;
    request.user = "user" + std::string(argv[2]);
    request.job = argv[3];
    request.parent = argc > 4 ? argv[4] : "";
    const auto id = opened ? write(*opened, request, content) : std::unexpected(opened.error());
    (id ? std::cout << *id : std::cerr << id.error().message()) << '\n';
    return id ? EXIT_SUCCESS : EXIT_FAILURE;
}
