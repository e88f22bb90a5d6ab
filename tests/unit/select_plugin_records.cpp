// SPDX-License-Identifier: GPL-2.0-or-later
// Reading records: what is there, and that nothing wrong ends in a fault.
#include "cmocka.hpp"
#include "select-plugin/synthetic.hpp"

#include <array>
#include <string>

#include <sys/mman.h>
#include <unistd.h>

namespace {

using namespace singularity;
using namespace singularity::records;
using test::expect_contains;
using test::expect_equal;
using test::SyntheticJob;

// Two pages of which the second cannot be read.
class Cliff {
  public:
    Cliff() : page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))) {
        start_ = static_cast<char *>(
            mmap(nullptr, 2 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        mprotect(start_ + page_, page_, PROT_NONE);
    }
    ~Cliff() { munmap(start_, 2 * page_); }
    Cliff(const Cliff &) = delete;
    Cliff &operator=(const Cliff &) = delete;

    [[nodiscard]] char *edge() const { return start_ + page_; }

  private:
    std::size_t page_;
    char *start_ = nullptr;
};

void memory_of_this_process_can_be_read(void ** /*state*/) {
    const auto usable = SafeReader::usable();
    if (!usable)
        test::fail(usable.error().message());
}

template <class Reader>
void expect_whole_job() {
    const SyntheticJob synthetic(71);
    const auto job = read_job_record(Reader{}, synthetic.job.address());
    if (!job)
        test::fail(job.error().message());
    assert_int_equal(job->job_id, 71);
    assert_int_equal(job->job_state, JOB_RUNNING);
    assert_int_equal(job->restart_cnt, 2);
    assert_int_equal(job->start_time, 2000);
    expect_equal(job->name, "train");
    expect_equal(job->tres_fmt_alloc_str, "cpu=16,gres/gpu=4");
    assert_true(job->details.has_value());
    assert_int_equal(job->details->submit_time, 1000);
    assert_int_equal(job->details->requeue, 1);
    assert_true(job->part_ptr.has_value());
    expect_equal(job->part_ptr->name, "gpu");
    assert_int_equal(job->part_ptr->priority_tier, 3);
    assert_true(job->qos_ptr.has_value());
    expect_equal(job->qos_ptr->name, "standard");
}

void safe_reader_reads_a_job_and_what_it_leads_to(void ** /*state*/) { expect_whole_job<SafeReader>(); }
void direct_reader_reads_the_same(void ** /*state*/) { expect_whole_job<DirectReader>(); }

void null_pointers_are_nothing(void ** /*state*/) {
    SyntheticJob synthetic(71);
    const char *const no_text = nullptr;
    const void *const nowhere = nullptr;
    synthetic.job.set(kJob_account, no_text).set(kJob_details, nowhere).set(kJob_qos_ptr, nowhere);
    for (const auto &job : {read_job_record(SafeReader{}, synthetic.job.address()),
                            read_job_record(DirectReader{}, synthetic.job.address())}) {
        assert_true(job.has_value());
        expect_equal(job->account, "");
        assert_false(job->details.has_value());
        assert_false(job->qos_ptr.has_value());
        assert_true(job->part_ptr.has_value());
    }
}

void wrong_magic_number_is_named(void ** /*state*/) {
    SyntheticJob synthetic(71);
    synthetic.job.store(kJobLayout.magic_offset, 0xdeadbeefU);
    for (const auto &job : {read_job_record(SafeReader{}, synthetic.job.address()),
                            read_job_record(DirectReader{}, synthetic.job.address())}) {
        assert_false(job.has_value());
        expect_equal(job.error().message(),
                     "cannot recognise job_record: its magic number is 0xdeadbeef, expected 0xf0b7392c");
    }
}

void wrong_magic_number_behind_a_pointer_is_named(void ** /*state*/) {
    SyntheticJob synthetic(71);
    synthetic.details.store(kJobDetailsLayout.magic_offset, 1U);
    const auto job = read_job_record(SafeReader{}, synthetic.job.address());
    assert_false(job.has_value());
    expect_contains(job.error().message(), "job_details");
}

void wrong_block_size_is_named(void ** /*state*/) {
    SyntheticJob synthetic(71);
    synthetic.job.set_block_size(kJobLayout.size - 16);
    const auto job = read_job_record(SafeReader{}, synthetic.job.address());
    assert_false(job.has_value());
    expect_contains(job.error().message(), "job_record: its block is ");
    expect_contains(job.error().message(), "the table says ");
}

void something_that_slurm_did_not_allocate_is_refused(void ** /*state*/) {
    SyntheticJob synthetic(71);
    synthetic.job.set_block_magic(0x1234);
    const auto job = read_job_record(SafeReader{}, synthetic.job.address());
    assert_false(job.has_value());
    expect_contains(job.error().message(), "not the start of a block that Slurm allocated");
}

void wild_pointers_are_errors(void ** /*state*/) {
    const Cliff cliff;
    // Null, the zero page, not canonical, the end of the address space, memory that cannot be read.
    for (const std::uintptr_t wild :
         {std::uintptr_t{0}, std::uintptr_t{8}, std::uintptr_t{0x4242424242424242}, ~std::uintptr_t{0},
          reinterpret_cast<std::uintptr_t>(cliff.edge())}) {
        const void *const address = reinterpret_cast<const void *>(wild);
        assert_false(read_job_record(SafeReader{}, address).has_value());
        if (wild == 0)
            continue;
        SyntheticJob synthetic(71);
        synthetic.job.set(kJob_details, address);
        assert_false(read_job_record(SafeReader{}, synthetic.job.address()).has_value());
        SyntheticJob other(71);
        other.job.set(kJob_name, address);
        const auto job = read_job_record(SafeReader{}, other.job.address());
        assert_false(job.has_value());
        expect_contains(job.error().message(), "job_record.name");
    }
}

void record_that_ends_in_unreadable_memory_is_an_error(void ** /*state*/) {
    const Cliff cliff;
    // The header can be read, the end of the record not.
    char *const start = cliff.edge() - kJobLayout.size / 2;
    const BlockHeader header{.magic = BlockHeader::kMagic, .size = kJobLayout.size};
    std::memcpy(start - sizeof(header), &header, sizeof(header));
    const auto job = read_job_record(SafeReader{}, start);
    assert_false(job.has_value());
    expect_contains(job.error().message(), "job_record");
    assert_int_equal(job.error().code, EFAULT);
}

void text_may_end_where_memory_ends(void ** /*state*/) {
    const Cliff cliff;
    const std::string name(1000, 'x');
    char *const start = cliff.edge() - name.size() - 1;
    std::memcpy(start, name.c_str(), name.size() + 1);
    SyntheticJob synthetic(71);
    synthetic.job.set(kJob_name, static_cast<const char *>(start));
    const auto job = read_job_record(SafeReader{}, synthetic.job.address());
    if (!job)
        test::fail(job.error().message());
    expect_equal(job->name, name);
    // One byte more, and its end is gone.
    *(cliff.edge() - 1) = 'x';
    assert_false(read_job_record(SafeReader{}, synthetic.job.address()).has_value());
}

void endless_text_is_an_error(void ** /*state*/) {
    const std::string endless(2 * SafeReader::kLongestText, 'x');
    SyntheticJob synthetic(71);
    synthetic.job.set(kJob_name, endless.c_str());
    const auto job = read_job_record(SafeReader{}, synthetic.job.address());
    assert_false(job.has_value());
    expect_contains(job.error().message(), "no end of text");
}

void without_a_table_nothing_is_read(void ** /*state*/) {
    static constexpr StructLayout kUnknown{
        .name = "job_record", .size = kNowhere, .magic_offset = kNowhere, .magic = 0};
    const SyntheticJob synthetic(71);
    const auto safe = SafeReader{}.open(kUnknown, synthetic.job.address());
    const auto direct = DirectReader{}.open(kUnknown, synthetic.job.address());
    assert_false(safe.has_value());
    assert_false(direct.has_value());
    expect_contains(safe.error().message(), "make-table.py");
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(memory_of_this_process_can_be_read),
        cmocka_unit_test(safe_reader_reads_a_job_and_what_it_leads_to),
        cmocka_unit_test(direct_reader_reads_the_same),
        cmocka_unit_test(null_pointers_are_nothing),
        cmocka_unit_test(wrong_magic_number_is_named),
        cmocka_unit_test(wrong_magic_number_behind_a_pointer_is_named),
        cmocka_unit_test(wrong_block_size_is_named),
        cmocka_unit_test(something_that_slurm_did_not_allocate_is_refused),
        cmocka_unit_test(wild_pointers_are_errors),
        cmocka_unit_test(record_that_ends_in_unreadable_memory_is_an_error),
        cmocka_unit_test(text_may_end_where_memory_ends),
        cmocka_unit_test(endless_text_is_an_error),
        cmocka_unit_test(without_a_table_nothing_is_read),
    };
    return cmocka_run_group_tests_name("select_plugin_records", tests, nullptr, nullptr);
}
