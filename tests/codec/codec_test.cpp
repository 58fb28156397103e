// Tests lib/codec/codec: parsing and printing of spec strings, refusals that name what is possible,
// and the anchors of the error predictions.
#include "spec_kit.hpp"

#include "codec/codec_names.hpp"
#include "codec/error_model.hpp"

#include <cmath>
#include <cstring>

using namespace qccl;
using namespace qtest;

static void names_have_their_usual_keys() {
    CHECK(parsed("none") == Codec{});
    CHECK(parsed("fp16").id == CodecId::fp16);
    CHECK(parsed("bf16").id == CodecId::bf16);
    for (const int bits : {12, 10, 8, 6, 5, 4, 3, 2}) {
        const Codec codec = parsed(("int" + std::to_string(bits)).c_str());
        CHECK(codec.id == CodecId::integer);
        CHECK_EQ(int{codec.bits}, bits);
        CHECK_EQ(codec.bucket, 32U);
        CHECK(codec.rounding == Rounding::nearest);
    }
    const Codec minmax = parsed("minmax");
    CHECK(minmax.id == CodecId::minmax);
    CHECK_EQ(minmax.bits, 8);
    CHECK_EQ(minmax.bucket, 512U);
}

static void keys_are_read() {
    const Codec codec = parsed("int4:block=100,round=stochastic,seed=18446744073709551615,min=64K");
    CHECK_EQ(codec.bucket, 100U);
    CHECK(codec.rounding == Rounding::stochastic);
    CHECK_EQ(codec.seed, ~uint64_t{0});
    CHECK(codec.min_bytes == 65536U);
    CHECK_EQ(parsed("minmax:bucket=all,bits=3").bucket, Codec::whole_chunk);
    CHECK(parsed("minmax:skip_incomplete=1").skips_incomplete);
    CHECK(parsed("fp16:min=3").min_bytes == 3U);
    CHECK(parsed("int8:min=0").min_bytes == 0U && !parsed("int8").min_bytes);
    CHECK_EQ(spec(parsed("int8:min=0")), "int8:min=0");
    CHECK_EQ(parsed("int2:seed=5,round=stochastic").seed, 5U);
    CHECK_EQ(spec(parsed("minmax:seed=5,round=dither,bits=4")),
             "minmax:bits=4,round=dither,seed=5");
    CHECK_EQ(parsed("tbq:threshold=0.25").threshold, 0.25F);
    CHECK_EQ(spec(parsed("tbq:threshold=0.1,entropy=0")), "tbq:threshold=0.1,entropy=0");
    CHECK_EQ(spec(parsed("tbq:threshold=0.01")), "tbq");
    CHECK_EQ(parsed("int4:rotate=128").rotation, 128U);
    CHECK_EQ(spec(parsed("minmax:rotate=64,bits=4")), "minmax:bits=4,rotate=64");
    CHECK(parsed("int4:rotate=off") == parsed("int4:rotate=0"));
    CHECK(parsed("int4:round=dither").dithers() && parsed("int4:round=dither").draws_noise());
}

static void graddrop_is_topk() {
    CHECK(parsed("graddrop") == parsed("topk:ratio=0.01"));
    CHECK(parsed("graddrop:ratio=0.05,min=1K,owner=exact") ==
          parsed("topk:ratio=0.05,min=1K,owner=exact"));
    CHECK(parsed("graddrop:ratio=0.001") == parsed("topk"));
    check_refused("graddrop:momentum=0.9",
                  "key of graddrop is \"momentum\"; possible are min, ratio, owner");
}

static void shortest_specs_lead_back() {
    for (const char *text :
         {"none",
          "bf16:min=1M",
          "fp8e5m2:min=2",
          "fp8e4m3:block=32",
          "fp8e4m3:block=512,round=stochastic,seed=4,min=1K,entropy=1,guard=nmse:0.1",
          "int12:block=8",
          "int8",
          "int2:block=1",
          "int4:round=stochastic",
          "int6:block=64,round=stochastic,seed=9,min=3G",
          "minmax",
          "minmax:bits=1",
          "minmax:bucket=all",
          "mxfp6e2m3:min=1K,scale=ocp",
          "mxfp4:round=stochastic,seed=3,scale=ocp",
          "nvfp4",
          "nvfp4:bucket=all",
          "onebit",
          "onebit:bucket=100,min=4",
          "terngrad",
          "topk",
          "topk:min=5,ratio=0.000001",
          "topk:ratio=1",
          "topk:min=5,owner=exact",
          "dummy",
          "dummy:min=0,ratio=0.000001",
          "dgc",
          "dgc:min=5,ratio=0.25,momentum=0,warmup=1000000000,owner=exact",
          "dgc:momentum=0.999",
          "fp16:owner=exact",
          "int8:min=0,guard=nmse:0.001,owner=exact",
          "terngrad:bucket=7,seed=3,min=1K,clip=0.125",
          "norm:round=nearest",
          "norm:bits=2,bucket=64,seed=5,min=1K,norm=linf,levels=exponential,guard=nmse:0.1",
          "nvfp4:bucket=32,scale=ceil",
          "lossless:min=1K",
          "bound",
          "bound:rel=0.1,entropy=1",
          "bound:min=5,abs=0.001,guard=nmse:0.1,owner=exact",
          "bound:abs=1e-36",
          "bound:abs=1e+36",
          "bound:rel=1e-09",
          "bound:pw=0.001,entropy=1",
          "shared",
          "shared:bits=2,block=1",
          "shared:bits=8,block=1073741824,min=64K",
          "int8:entropy=1",
          "minmax:bucket=all,entropy=1",
          "bf16:min=5,entropy=1,owner=exact",
          "minmax:bits=4,bucket=1073741824,round=stochastic,seed=1,min=1025,skip_incomplete=1"}) {
        CHECK_EQ(spec(parsed(text)), text);
        CHECK(parsed(spec(parsed(text)).c_str()) == parsed(text));
    }
}

static void specs_are_shortened() {
    CHECK_EQ(spec(parsed("int4:block=32,round=nearest")), "int4");
    CHECK_EQ(spec(parsed("minmax:bits=8,bucket=512,skip_incomplete=0")), "minmax");
    CHECK_EQ(spec(parsed("int3:owner=decoded")), "int3");
    CHECK_EQ(spec(parsed("int3:entropy=0")), "int3");
    CHECK_EQ(spec(parsed("int3:min=2048")), "int3:min=2K");
    for (const CodecName &row : codec_names())
        CHECK_EQ(spec(parsed(row.name.data())),
                 row.name == "graddrop" ? "topk:ratio=0.01" : row.name);
}

static void sizes_are_written_as_in_every_setting() {
    CHECK_EQ(spec(parsed("int3:min=64k")), "int3:min=64K");
    CHECK_EQ(spec(parsed("int3:min=2MiB")), "int3:min=2M");
    CHECK_EQ(spec(parsed("int3:min=1.5M")), "int3:min=1536K");
    CHECK_EQ(spec(parsed("int3:min=2048G")), "int3:min=2T");
    CHECK_EQ(spec(parsed("int3:min=1T")), "int3:min=1T");
}

static void budgets_come_back() {
    for (const char *text :
         {"auto:nmse=0.001,owner=exact", "auto:nmse=0.001", "auto:nmse=1e-05", "auto:bits=4",
          "auto:bits=4.5", "auto:nmse=0.02,bits=6.125", "auto:nmse=0.001,min=64K",
          "auto:nmse=0.3,bits=64,from=int+minmax+nvfp4+bf16,min=0"}) {
        CHECK_EQ(spec(parsed(text)), text);
        CHECK(parsed(spec(parsed(text)).c_str()) == parsed(text));
        CHECK(parsed(text).is_auto() && !parsed(text).is_lossless() && !is_possible(parsed(text)));
    }
    CHECK_EQ(spec(parsed("auto:bits=4.50,nmse=1e-3")), "auto:nmse=0.001,bits=4.5");
    CHECK_EQ(spec(parsed("auto:from=bf16+int+int,nmse=1E-2")), "auto:nmse=0.01,from=int+bf16");
    CHECK(!(parsed("auto:nmse=1e-3") == parsed("auto:nmse=2e-3")));
    const auto list = parse_codec_list("none,auto:nmse=1e-3,bits=4,int8");
    CHECK_OK(list);
    CHECK_EQ(list->size(), size_t{3});
    CHECK_EQ(spec((*list)[1]), "auto:nmse=0.001,bits=4");
}

static void strange_budgets_are_refused() {
    for (const char *text : {"auto", "auto:min=5", "auto:from=int"})
        check_refused(text, "auto needs a budget: nmse=E");
    for (const char *text : {"0", "1", "-0.1", "1e-400", "1e-310", "nan", "inf", "+0.1", "0,1x", "",
                             "0.1 ", "0x1p-4", "1e"})
        check_refused(std::string("auto:nmse=") + text, "possible is a number above 0 and below 1");
    for (const char *text : {"0", "0.999", "64.001", "-4", "", "4.0001", "1e1"})
        check_refused(std::string("auto:bits=") + text, "possible is 1 to 64");
    for (const char *text : {"", "int4", "+", "int+", "INT", "bf16,"})
        check_refused(std::string("auto:nmse=0.1,from=") + text, "possible are");
    check_refused("auto:", "possible are min, nmse, bits, from");
    check_refused("auto:nmse=0.1,round=stochastic", "possible are min, nmse, bits, from");
    check_refused("int4:nmse=0.1", "possible are block, round, seed, min");
}

static void strange_names_are_refused() {
    for (const char *text : {"", "int7", "int1", "int9", "int11", "int16", "int", "INT4", "int4 ",
                             " int4", "none4", "fp8", "topK", ":", "int4;"})
        check_refused(
            text, "none, fp16, bf16, fp8e4m3, fp8e5m2, int12, int10, int8, int6, int5, "
                  "int4, int3, int2, minmax, "
                  "mxfp8e4m3, mxfp6e2m3, mxfp4, nvfp4, onebit, terngrad, topk, norm, dgc, dummy, "
                  "lossless, tbq, bound, graddrop, exact, shared, auto");
    check_refused(std::string(5000, 'x'), "possible are none, fp16");
    check_refused(std::string("int4\0", 5), "codec is \"int4");
    for (const char *text : {"int8@bytes>=1M", "int8:block=32@op=sum", "int4@bytes>=1M; int8"})
        check_refused(text, "only QCCL_CODEC takes conditions (@)");
}

static void strange_keys_are_refused() {
    for (const char *text :
         {"int4:", "int4:bucket=32", "int4:bits=4", "int4:skip_incomplete=1", "int4:blok=32",
          "int4:,", "int4:block=32,", "int4:=3", "int4:Block=32"})
        check_refused(text, "possible are block, round, seed, min");
    for (const char *text : {"minmax:block=32", "minmax:residual=on"})
        check_refused(text, "possible are bits, bucket, round, seed, min, skip_incomplete");
    for (const char *text : {"mxfp4:block=32", "mxfp8e4m3:bucket=32", "mxfp6e2m3:bits=6"})
        check_refused(text, "possible are round, seed, min, scale");
    for (const char *text : {"fp8e4m3:bits=8", "fp8e5m2:bucket=32", "fp8e4m3:rotate=32"})
        check_refused(text, "possible are block, round, seed, min, entropy, guard, owner");
    check_refused("fp16:block=32", "possible are round, seed, min, entropy, guard, owner");
    check_refused("fp16:scale=ocp", "possible are round, seed, min, entropy, guard, owner");
    check_refused("none:owner=exact", "none takes no keys");
    check_refused("none:min=5", "none takes no keys");
    check_refused("int4:block", "write block=VALUE");
    check_refused("int4:block=32,block=32", "given twice");
}

static void strange_values_are_refused() {
    for (const char *value :
         {"0", "-1", "+1", "1.5", "", "4294967296", "1073741825", "0x10", " 3", "32 ", "all"})
        check_refused(std::string("int4:block=") + value, "possible is 1 to 1073741824");
    for (const char *value : {"1", "16", "48", "1024", "1073741824"})
        check_refused(std::string("fp8e5m2:block=") + value,
                      "block of fp8e5m2 is a power of two from 32 to 512");
    for (const char *value : {"0", "-5", "ALL", "1073741825", "99999999999999999999999"})
        check_refused(std::string("minmax:bucket=") + value, "possible are 1 to 1073741824, all");
    for (const char *value : {"0", "9", "-1", "", "8b", "256", "264"})
        check_refused(std::string("minmax:bits=") + value, "possible is 1 to 8");
    for (const char *value : {"", "dithered", "Nearest", "up"})
        check_refused(std::string("int4:round=") + value,
                      "possible are nearest, stochastic, dither");
    for (const char *name : {"bf16", "fp8e4m3", "mxfp4", "nvfp4", "norm"})
        check_refused(std::string(name) + ":round=dither", "of codes with even steps");
    for (const char *value : {"", "-1", "x", "18446744073709551616"})
        check_refused(std::string("int4:round=stochastic,seed=") + value,
                      "possible is 0 to 18446744073709551615");
    for (const char *value : {"", "K", "-1", "1P", "1KK", "18446744073709551615K", "1.5.5M"})
        check_refused(std::string("int4:min=") + value, "a number of bytes");
    for (const char *value : {"", "2", "yes"})
        check_refused(std::string("minmax:skip_incomplete=") + value, "possible are 0, 1");
    for (const char *value : {"", "floor", "OCP"})
        check_refused(std::string("mxfp4:scale=") + value, "possible are ceil, ocp");
    for (const char *value : {"1", "16", "1000"})
        check_refused(std::string("nvfp4:bucket=") + value, "a multiple of 32, or all");
    for (const char *value : {"", "l1", "L2", "2"})
        check_refused(std::string("norm:norm=") + value, "possible are l2, linf");
    for (const char *value : {"", "powers", "Uniform"})
        check_refused(std::string("norm:levels=") + value, "possible are uniform, exponential");
    for (const char *value : {"", "0", "-1", "nan", "inf", "1e37", "1e-37", "1e-60", "0.1x", "+1"})
        check_refused(std::string("bound:abs=") + value, "possible is 1e-36 to 1e36");
    for (const char *value : {"", "0", "-0.1", "nan", "1.01", "1e-10", "0,1x"})
        check_refused(std::string("bound:rel=") + value, "possible is 1e-9 to 1");
    for (const char *value : {"", "0", "-0.1", "nan", "0.51", "9e-7"})
        check_refused(std::string("bound:pw=") + value, "possible is 1e-6 to 0.5");
    for (const char *text :
         {"bound:rel=0.1,abs=0.1", "bound:pw=0.1,abs=0.1", "bound:rel=0.1,pw=1e-3"})
        check_refused(text, "either abs=E, rel=E or pw=E");
    check_refused("bound:rel=0.1,guard=nmse:0.1", "a bucket of at most 4096");
    check_refused("bound:round=stochastic",
                  "possible are min, entropy, abs, rel, pw, guard, owner");
    check_refused("int8:entropy=2", "possible are 0, 1");
    check_refused("topk:entropy=1", "possible are min, ratio, owner");
    for (const char *value : {"", "1", "16", "48", "1024", "-32", "on", "4294967296"})
        check_refused(std::string("int4:rotate=") + value,
                      "possible are 0, off, a power of two from 32 to 512");
    for (const char *value : {"", "0", "-1", "nan", "inf", "1e-39", "1e39", "0.5x", "+1", " 1"})
        check_refused(std::string("tbq:threshold=") + value, "a number from 1.2e-38 to 3.4e38");
    check_refused("onebit:threshold=1", "possible are bucket, min");
    check_refused("norm:rotate=128", "norm, levels, entropy, guard, owner");
    check_refused("none:entropy=1", "none takes no keys");
    check_refused("lossless:entropy=1", "possible is min");
    check_refused("auto:nmse=0.1,entropy=1", "possible are min, nmse, bits, from");
    check_refused("norm:bits=1", "bits of norm is \"1\"; possible is 2 to 8");
    check_refused("norm:bits=9", "possible is 2 to 8");
    check_refused("norm:bucket=all", "here it is a number");
    check_refused("minmax:norm=l2", "possible are bits, bucket, round, seed");
}

static void strange_shares_and_limits_are_refused() {
    for (const char *value :
         {"", "0", "-1", "0.0001", "1000.001", "2.", ".5", "1e3", "2.5.1", "+1"})
        check_refused(std::string("terngrad:clip=") + value, "possible is 0.001 to 1000");
    for (const char *value : {"", "0", "1.000001", "0.0000001", "2", "-0.1", "1e-3"})
        check_refused(std::string("topk:ratio=") + value, "possible is 0.000001 to 1");
    for (const char *value : {"", "1", "-0.1", "0.9999", "1.0", "0.", ".9", "nan"})
        check_refused(std::string("dgc:momentum=") + value, "possible is 0 to 0.999");
    for (const char *value : {"", "-1", "1000000001", "0.5", "1e3"})
        check_refused(std::string("dgc:warmup=") + value, "possible is 0 to 1000000000");
    check_refused("topk:momentum=0.9", "possible are min, ratio, owner");
    check_refused("dgc:guard=nmse:0.1", "possible are min, ratio, momentum, warmup, owner");
    for (const char *value : {"", "1e-3", "nmse", "nmse:", "nmse:0", "nmse:1", "nmse:-0.1",
                              "nmse:nan", "nmse:0.1x", "nmse=0.1", "NMSE:0.1", "bits:4"})
        check_refused(std::string("int4:guard=") + value, "as nmse:1e-3");
    for (const char *value : {"", "Exact", "encoded", "1"})
        check_refused(std::string("int4:owner=") + value, "possible are decoded, exact");
    check_refused("topk:guard=nmse:0.1", "possible are min, ratio, owner");
    check_refused("none:guard=nmse:0.1", "none takes no keys");
    for (const char *text : {"minmax:bucket=all,", "nvfp4:bucket=all,", "int4:block=4097,"})
        check_refused(std::string(text) + "guard=nmse:0.1", "a bucket of at most 4096");
    check_refused("topk:select=exact", "possible are min, ratio");
    check_refused("terngrad:bucket=all", "here it is a number");
    check_refused("terngrad:round=stochastic", "possible are bucket, seed, min, clip");
    check_refused("onebit:bucket=all", "here it is a number");
    check_refused("onebit:round=nearest", "possible are bucket, min");
    check_refused("nvfp4:bucket=0", "possible are 1 to 1073741824, all");
}

static void impossible_combinations_are_refused() {
    check_refused("int4:seed=1", "round=stochastic");
    check_refused("int4:round=nearest,seed=0", "round=stochastic");
    check_refused("norm:round=nearest,seed=0", "round=stochastic");
    check_refused("minmax:bucket=all,skip_incomplete=1", "never incomplete");
    for (const char *bucket : {"16", "96", "100", "1024", "all"})
        check_refused("minmax:rotate=128,bucket=" + std::string(bucket),
                      "rotate needs a bucket of 32, 64, 128, 256 or 512 values");
    check_refused("int4:block=8,rotate=64", "rotate needs a block of 32, 64");
}

static void lists_continue_the_item_before() {
    const auto list =
        parse_codec_list("none,int4:block=64,round=stochastic,seed=3,int8,block=16,minmax:bits=4");
    CHECK_OK(list);
    CHECK_EQ(list->size(), 4U);
    CHECK((*list)[0].is_lossless());
    CHECK_EQ(spec((*list)[1]), "int4:block=64,round=stochastic,seed=3");
    // The value of a key may contain a ':'.
    const auto guarded = parse_codec_list("int4:block=64,guard=nmse:1e-3,int8,guard=nmse:0.5,fp16");
    CHECK_OK(guarded);
    CHECK_EQ(guarded->size(), 3U);
    CHECK_EQ(spec((*guarded)[0]), "int4:block=64,guard=nmse:0.001");
    CHECK_EQ(spec((*guarded)[1]), "int8:guard=nmse:0.5");
    CHECK_EQ(spec((*list)[2]), "int8:block=16");
    CHECK_EQ(spec((*list)[3]), "minmax:bits=4");
    for (const char *text : {"", ",", "int4,", ",int4", "block=32", "block=32,int4", "int4,,int8",
                             "none,block=3", "int4,bits=3"})
        CHECK(!parse_codec_list(text));
}

static void possible_is_what_a_spec_can_say() {
    const auto check_impossible = [](const char *name, auto &&change) {
        Codec codec = parsed(name);
        change(codec);
        CHECK(!is_possible(codec));
    };
    for (const char *name : {"bf16", "mxfp4", "nvfp4", "onebit", "terngrad", "topk", "norm"})
        check_impossible(name, [](Codec &codec) { codec.rounding = Rounding::dither; });
    check_impossible("int4", [](Codec &codec) { codec.bits = 7; });
    check_impossible("int4", [](Codec &codec) { codec.bucket = 0; });
    check_impossible("int4", [](Codec &codec) { codec.rounding = static_cast<Rounding>(3); });
    check_impossible("int4", [](Codec &codec) { codec.share = 1; });
    check_impossible("int4", [](Codec &codec) { codec.levels = Levels::exponential; });
    check_impossible("int4", [](Codec &codec) { codec.clip = usual_clip; });
    check_impossible("int4", [](Codec &codec) { codec.scaling = Scaling::ocp; });
    check_impossible("none", [](Codec &codec) { codec.rounding = Rounding::stochastic; });
    check_impossible("none", [](Codec &codec) { codec.id = static_cast<CodecId>(14); });
    check_impossible("mxfp4", [](Codec &codec) { codec.bits = 6; });
    check_impossible("fp8e4m3", [](Codec &codec) { codec.bucket = 32; });
    check_impossible("fp8e4m3", [](Codec &codec) { codec.bits = 8; });
    check_impossible("fp8e4m3:block=32", [](Codec &codec) { codec.bucket = 0; });
    check_impossible("fp8e4m3:block=32", [](Codec &codec) { codec.bucket = 1024; });
    check_impossible("fp8e5m2:block=32", [](Codec &codec) { codec.bits = 5; });
    check_impossible("fp8e5m2:block=32", [](Codec &codec) { codec.rotation = 32; });
    check_impossible("fp16", [](Codec &codec) { codec.bucket = 32; });
    check_impossible("mxfp6e2m3", [](Codec &codec) { codec.bucket = 64; });
    check_impossible("nvfp4", [](Codec &codec) { codec.bucket = 48; });
    check_impossible("onebit", [](Codec &codec) { codec.rounding = Rounding::stochastic; });
    check_impossible("terngrad", [](Codec &codec) { codec.rounding = Rounding::nearest; });
    check_impossible("terngrad", [](Codec &codec) { codec.clip = 0; });
    check_impossible("topk", [](Codec &codec) { codec.share = whole_share + 1; });
    check_impossible("topk", [](Codec &codec) { codec.bucket = 64; });
    check_impossible("dummy", [](Codec &codec) { codec.share = 0; });
    check_impossible("norm", [](Codec &codec) { codec.bits = 1; });
    check_impossible("minmax", [](Codec &codec) { codec.norm = BucketNorm::linf; });
    check_impossible("tbq", [](Codec &codec) { codec.threshold = 0; });
    check_impossible("tbq", [](Codec &codec) { codec.threshold = -1; });
    check_impossible("tbq", [](Codec &codec) { codec.threshold = std::nanf(""); });
    check_impossible("int4", [](Codec &codec) { codec.threshold = 1; });
    check_impossible("norm", [](Codec &codec) { codec.rotation = 128; });
    check_impossible("int4", [](Codec &codec) { codec.rotation = 96; });
    check_impossible("int4:block=16", [](Codec &codec) { codec.rotation = 64; });
    check_impossible("minmax:bucket=all", [](Codec &codec) { codec.rotation = 64; });
}

static void momentum_and_warm_up_are_of_dgc() {
    Codec codec = parsed("topk");
    codec.momentum = 1;
    CHECK(!is_possible(codec));
    codec = parsed("topk");
    codec.warm_up = 1;
    CHECK(!is_possible(codec));
    codec = parsed("dgc");
    codec.momentum = whole_momentum;
    CHECK(!is_possible(codec));
    codec.momentum = 0;
    CHECK(is_possible(codec));
}

// Shares of the calls of a state: from a quarter down in equal stages, and then the final one.
static void warm_up_keeps_fewer_values_from_stage_to_stage() {
    const Codec codec = parsed("dgc:ratio=0.001,warmup=10"); // of four stages
    const uint32_t shares[] = {250000, 250000, 250000, 62500, 62500, 15625,
                               15625,  15625,  3906,   3906,  1000,  1000};
    for (uint64_t call = 1; call <= std::size(shares); call++) {
        CHECK_EQ(codec.at_call(call).share, shares[call - 1]);
        CHECK_EQ(codec.at_call(call).momentum, usual_momentum);
    }
    CHECK(codec.at_call(0) == codec && codec.at_call(uint64_t{1} << 60) == codec);
    for (const char *text : {"dgc:ratio=0.25,warmup=9", "dgc:ratio=1,warmup=9", "dgc:warmup=0"})
        CHECK(parsed(text).at_call(1) == parsed(text));
    const Codec longest = parsed("dgc:ratio=0.000001,warmup=1000000000");
    CHECK_EQ(longest.at_call(1).share, 250000U);
    CHECK_EQ(longest.at_call(1000000000).share, 3U);
    CHECK_EQ(longest.at_call(1000000001).share, 1U);
}

// The anchors come from a simulation with other code. reference_test compares the reference with
// them.
static void errors_are_predicted() {
    const auto near = [](double value, double anchor) {
        return std::abs(value / anchor - 1) < 0.05;
    };
    CHECK_EQ(unit_nmse(parsed("none"), DataType::float32), 0.0);
    CHECK(near(unit_nmse(parsed("int8"), DataType::float32), 2.9e-5));
    CHECK(near(unit_nmse(parsed("int6"), DataType::float32), 4.5e-4));
    CHECK(near(unit_nmse(parsed("int10"), DataType::float32), 1.8e-6));
    CHECK(near(unit_nmse(parsed("int12"), DataType::float32), 1.1e-7));
    CHECK(near(unit_nmse(parsed("int4"), DataType::float32), 7.4e-3));
    CHECK(near(unit_nmse(parsed("minmax"), DataType::float32), 4.8e-5));
    CHECK(near(unit_nmse(parsed("minmax:bits=4"), DataType::float32), 1.4e-2));
    CHECK(near(unit_nmse(parsed("mxfp8e4m3"), DataType::float32), 7.0e-4));
    CHECK(near(unit_nmse(parsed("fp8e4m3:block=32"), DataType::float32), 5.8e-4));
    CHECK(near(unit_nmse(parsed("fp8e4m3:block=512"), DataType::float32), 6.9e-4));
    CHECK(near(unit_nmse(parsed("fp8e5m2:block=32"), DataType::float32), 2.3e-3));
    CHECK(near(unit_nmse(parsed("mxfp8e4m3:scale=ocp"), DataType::float32), 8.9e-4));
    CHECK(near(unit_nmse(parsed("mxfp6e2m3"), DataType::float32), 8.0e-4));
    CHECK(near(unit_nmse(parsed("mxfp4"), DataType::float32), 1.37e-2));
    CHECK(near(unit_nmse(parsed("mxfp4:scale=ocp"), DataType::float32), 1.34e-2));
    CHECK(near(unit_nmse(parsed("nvfp4:scale=ceil"), DataType::float32), 1.01e-2));
    CHECK(near(unit_nmse(parsed("nvfp4"), DataType::float32), 9.1e-3));
    CHECK(near(unit_nmse(parsed("onebit"), DataType::float32), 0.362));
    CHECK_EQ(unit_nmse(parsed("onebit:bucket=1"), DataType::float32), 0.0);
    CHECK(near(unit_nmse(parsed("norm"), DataType::float32), 5.29e-3));
    CHECK(near(unit_nmse(parsed("norm:round=nearest"), DataType::float32), 2.64e-3));
    CHECK(near(unit_nmse(parsed("norm:bits=4"), DataType::float32), 1.584));
    CHECK(near(unit_nmse(parsed("norm:norm=linf"), DataType::float32), 1.10e-4));
    CHECK(near(unit_nmse(parsed("norm:bits=2,bucket=4"), DataType::float32), 0.698));
    CHECK(near(unit_nmse(parsed("norm:levels=exponential"), DataType::float32), 8.25e-2));
    CHECK(near(unit_nmse(parsed("norm:bits=4,norm=linf,levels=exponential,round=nearest"),
                         DataType::float32),
               3.82e-2));
    CHECK_EQ(unit_nmse(parsed("norm:bucket=1"), DataType::float32), 0.0);
    CHECK_EQ(parsed("topk").share, 1000U);
    CHECK_EQ(parsed("dummy").share, 250000U);
    CHECK_EQ(unit_nmse(parsed("dgc:ratio=0.1"), DataType::float32),
             unit_nmse(parsed("topk:ratio=0.1"), DataType::float32));
    CHECK_EQ(spec(parsed("dgc:momentum=0.900,warmup=0")), "dgc");
    CHECK_EQ(parsed("terngrad").clip, 2500U);
    CHECK_EQ(spec(parsed("terngrad:clip=2.500")), "terngrad");
    CHECK_EQ(spec(parsed("terngrad:clip=1000")), "terngrad:clip=1000");
    CHECK_EQ(unit_nmse(parsed("fp16"), DataType::float16), 0.0);
    CHECK_EQ(unit_nmse(parsed("fp16"), DataType::bfloat16), 0.0);
    CHECK(unit_nmse(parsed("bf16"), DataType::float16) > 0);
    CHECK(near(unit_nmse(parsed("bf16"), DataType::float32) /
                   unit_nmse(parsed("fp16"), DataType::float64),
               64));
    CHECK(near(unit_nmse(parsed("int8:round=stochastic"), DataType::float32) /
                   unit_nmse(parsed("int8"), DataType::float32),
               2));
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(names_have_their_usual_keys),
        QTEST(keys_are_read),
        QTEST(graddrop_is_topk),
        QTEST(shortest_specs_lead_back),
        QTEST(specs_are_shortened),
        QTEST(sizes_are_written_as_in_every_setting),
        QTEST(strange_names_are_refused),
        QTEST(strange_keys_are_refused),
        QTEST(budgets_come_back),
        QTEST(strange_budgets_are_refused),
        QTEST(strange_values_are_refused),
        QTEST(strange_shares_and_limits_are_refused),
        QTEST(impossible_combinations_are_refused),
        QTEST(lists_continue_the_item_before),
        QTEST(possible_is_what_a_spec_can_say),
        QTEST(momentum_and_warm_up_are_of_dgc),
        QTEST(warm_up_keeps_fewer_values_from_stage_to_stage),
        QTEST(errors_are_predicted),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
