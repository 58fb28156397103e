"""qccl-info from outside: topics, explanations, and texts that are proven or refused.

usage: info_test.py QCCL_INFO
"""
import itertools
import json
import re
import socket
import subprocess
import sys
import tempfile
import unittest

import tool

INFO = sys.argv.pop(1)


def info(*words, **more):
    return tool.run([INFO, *words], **more)


def text_of(collective, algorithm, ranks, codec=None, root=0):
    coded = ["--codec", codec] if codec else []
    return "".join(info("schedule", collective, "--algo", algorithm, "--ranks", ranks, "--rank", rank, "--root", root,
                        *coded).stdout for rank in range(ranks))


class Topics(unittest.TestCase):
    def test_all_are_printed_without_arguments(self):
        said = info().stdout
        for topic in ("version", "devices", "transports", "codecs", "tools", "settings"):
            self.assertIn(info(topic).stdout.strip(), said)
        for word in ("host", "shm", "inproc", "int4", "minmax", "QCCL_CODEC"):
            self.assertIn(word, said)

    def test_the_version(self):
        said = info("--version").stdout
        self.assertRegex(said, r"^qccl-info \d+\.\d+\.\d+\n$")
        self.assertEqual(info("version").stdout.split()[1], said.split()[1])
        self.assertRegex(info("version").stdout, r"\nhwloc 2\.[\d.]+\n$")

    def test_the_twins_of_functions_are_explained(self):
        for word in ("pqcclAllReduce", "profilers", "qccl/tools.h"):
            self.assertIn(word, info("tools").stdout)

    def test_the_run_as_json(self):
        said = json.loads(info("--json", env={"QCCL_LANES": "3"}).stdout)
        self.assertEqual(list(said), ["version", "command_line", "host", "date", "settings"])
        self.assertEqual("qccl-info " + said["version"], info("--version").stdout.strip())
        self.assertEqual((said["command_line"], said["host"]), ([INFO, "--json"], socket.gethostname()))
        self.assertEqual(said["settings"]["QCCL_LANES"], {"value": "3", "by": "environment"})
        self.assertEqual(set(said["settings"]), set(re.findall(r"^  (QCCL_\w+)", info("settings").stdout, re.M)))
        self.assertIsNone(json.loads(info("--json", env={"QCCL_LANES": "0"}).stdout)["settings"])

    def test_json_and_a_topic_are_refused(self):
        for words in (["--json", "codecs"], ["codecs", "--json"]):
            done = subprocess.run([INFO, *words], capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn("--json describes the run and takes no topic; codecs prints text only", done.stderr)

    def test_settings_say_who_set_them(self):
        said = info("settings", env={"QCCL_CODEC": "int8", "QCCL_COCED": "x"}).stdout
        self.assertRegex(said, r"QCCL_CODEC +int8 +\(environment\)")
        self.assertRegex(said, r"QCCL_ALGO +auto +\(built in\)")
        self.assertIn("did you mean QCCL_CODEC?", said)
        self.assertIn("QCCL_TIMEOUT", info("settings", expect=1, env={"QCCL_TIMEOUT": "soon"}).stderr)
        self.assertEqual(info("settings", env={"QCCL_COCED": "x"}).stderr, "")

    def test_items_and_plans_are_shown_with_what_they_decide(self):
        items = {"QCCL_CODEC": "int4@bytes>=1M,op=sum; int8", "QCCL_ALGO": "ring@nodes=2;auto@ranks<4;tree"}
        with tempfile.NamedTemporaryFile("w") as plan:
            plan.write("qccl-plan version=1\njob ranks=4\nparts=3 algorithm=direct @collective=all_gather\n")
            plan.flush()
            env = {**items, "QCCL_PLAN_FILE": plan.name}
            said = info("settings", env=env).stdout
            for line in ("QCCL_CODEC, item 1: int4 for op=sum,bytes>=1048576", "QCCL_CODEC, item 2: int8 for all calls",
                         "QCCL_ALGO, item 2: auto for ranks<=3", "QCCL_PLAN_FILE: 1 rule for ranks=4"):
                self.assertIn(f"  {line}\n", said)
            explain = lambda collective, size, *more, **rest: info("explain", collective, "--bytes", size, *more, env=env, **rest)
            four = ("--ranks", "4")
            self.assertTrue(explain("all_reduce", "4M", *four).stdout.startswith(
                'codec int4 by item 1 of QCCL_CODEC, "int4@bytes>=1M,op=sum"\nalgorithm tree by item 3 of QCCL_ALGO, "tree"\nall_reduce'))
            said = explain("all_reduce", "4K", *four, "--hosts", "2,2").stdout
            self.assertTrue(said.startswith('codec int8 by item 2 of QCCL_CODEC, "int8"\nalgorithm ring by item 1 of QCCL_ALGO'), said)
            self.assertTrue(explain("all_reduce", "4M", *four, "--codec", "none", "--algo", "direct").stdout.startswith("all_reduce"))
            said = explain("all_gather", "4M", *four).stdout
            self.assertIn("algorithm direct by line 3 of QCCL_PLAN_FILE", said)
            self.assertIn("cut by line 3 of QCCL_PLAN_FILE", said)
            self.assertRegex(said, r"\* direct .* 3 segments in 3 lanes")
            self.assertIn("it is the plan of another job: of 4 ranks", explain("all_reduce", "4M", "--ranks", "8", expect=2).stderr)

    def test_what_is_possible_is_listed_whole(self):
        for name in ("QCCL_ALGO", "QCCL_TIER"):
            self.assertRegex(info("settings", expect=1, env={name: "x"}).stderr, rf'{name} is "x"; possible are .*, auto\n$')
            info("settings", env={name: "auto"})

    def test_what_the_library_refuses_is_refused(self):
        for name, value in (("CODEC", "int9"), ("ALGO", "rang"), ("TIER", "mmx"), ("ARENA", "1"), ("ARENA", "9999G"),
                            ("ARENA", "18446744073709551615"), ("SOCKET_IFNAME", "nowhere0"), ("DEBUG_FILE", "%z"), ("TRACE", "%z"), ("RECORD_CALLS", "%"),
                            ("DEBUG_FILE", "/nowhere/at/all"), ("SECRET_FILE", "/nowhere/at/all"), ("PROGRESS_CPU", "100000"),
                            ("INJECT", "rank=1"), ("CHECKSUM", "2"), ("LANES", "0")):
            done = info("settings", expect=1, env={"QCCL_" + name: value})
            self.assertRegex(done.stderr, f"(?i){value}|memory")
        for name, value in (("CODEC", "int8"), ("ALGO", "ring"), ("TIER", "scalar"), ("ARENA", "1M"), ("SPIN", "0"),
                            ("SOCKET_IFNAME", "lo"), ("INJECT", "call=1,kill"), ("HOSTID", "x"), ("PROGRESS_CPU", "0")):
            self.assertRegex(info("settings", env={"QCCL_" + name: value}).stdout, f"QCCL_{name} +{value} +.environment")

    def test_the_columns_of_codecs_stand_under_their_names(self):
        table, keys = info("codecs").stdout.split("\nkeys\n")
        header, *rows = table.splitlines()[1:]
        names = re.split(r" {2,}", header.strip())
        self.assertEqual(names, ["name", "bits per fp32", "NMSE, one encode", "keys"])
        ends = [header.index(name) + len(name) for name in names[:-1]]
        self.assertIn("int4", [row.split()[0] for row in rows])
        for row in rows:
            self.assertEqual([found.end() for found in re.finditer(r"\S+", row)][1:3], ends[1:], row)
        return rows, keys.splitlines()

    def test_the_keys_of_codecs_are_those_that_specs_take(self):
        rows, keys = self.test_the_columns_of_codecs_stand_under_their_names()
        possible = dict(re.split(r" {2,}", line.strip(), maxsplit=1) for line in keys)
        for row in rows:
            codec, _, _, *taken = row.replace(",", "").split()
            for key, values in possible.items():
                # The last value of those that are listed; seeds are of use with noise alone, not every bucket may be all, blocks of fp8 have up to
                # 512 values, and not every codec takes dither.
                value = {"round": "stochastic", "min": "1K", "bucket": "1024", "block": "512", "nmse": "0.1", "bits of auto": "4.5", "from": "int", "guard": "nmse:0.1"}.get(key)
                if key == "bits of auto" and codec != "auto":
                    continue
                key = key.removesuffix(" of auto")
                spec = f"{codec}:{key}={value or re.split(', | to ', values)[-1]}"
                if codec == "auto" and key not in ("nmse", "bits"):
                    spec += ",nmse=0.1"
                spec += ",round=stochastic" if key == "seed" and "round" in taken else ""
                # A guard decides bucket by bucket, and a bound relative to the chunk's range has one bucket.
                spec += ",abs=0.01" if codec == "bound" and key == "guard" else ""
                info("explain", "all_gather" if key == "owner" else "all_reduce", "--bytes", "64K", "--ranks", "2", "--codec", spec,
                     expect=0 if key in taken else 2)

    def test_bytes_are_of_the_whole_vector(self):
        # (P - 1) / P of the vector is sent by every rank, whatever the algorithm.
        for collective in ("all_gather", "reduce_scatter"):
            said = info("explain", collective, "--bytes", "64M", "--ranks", "4").stdout
            self.assertIn("4194304 float", said)
            self.assertEqual(set(re.findall(r"sends (\d+)", said)), {"48"})

    def test_explanations_count_in_words(self):
        for size in ("1K", "64M"):
            said = info("explain", "all_reduce", "--bytes", size, "--ranks", "4").stdout
            self.assertRegex(said, r"\d segments? in \d+ lanes?")
            self.assertNotRegex(said, r"(?<!\d)1 (segments|lanes|rounds)\b")

    def test_explanations_name_a_choice(self):
        said = info("explain", "all_reduce", "--bytes", "64M", "--ranks", "4", "--codec", "int4").stdout
        self.assertIn("int4", said)
        chosen = said.strip().splitlines()[-1].split(":")[0]
        self.assertIn(f"* {chosen}", said)
        for algorithm in ("ring", "direct"):
            self.assertIn(algorithm, said)
        forced = info("explain", "all_reduce", "--bytes", "64M", "--ranks", "4", "--algo", "ring").stdout
        self.assertIn("ring: it was asked for", forced)


class Output(unittest.TestCase):
    def test_that_is_lost_is_told(self):
        tool.check_loss_is_told(INFO, [], ["codecs"], ["--help"], ["verify", "all_reduce", "--algo", "ring", "--ranks", "2"],
                                ["schedule", "all_reduce", "--algo", "ring", "--ranks", "2"])


class Proofs(unittest.TestCase):
    def test_what_is_printed_is_proven(self):
        for algorithm, collective, codec, ranks in itertools.product(
                ("ring", "direct", "oneshot"), ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "gather", "scatter", "all_to_all", "scan", "exscan"),
                (None, "int8"), (1, 2, 5)):
            if algorithm == "ring" and collective in ("gather", "scatter", "all_to_all", "scan", "exscan") or algorithm == "direct" and "scan" in collective:
                continue  # there is no such schedule
            text = text_of(collective, algorithm, ranks, codec, root=ranks - 1)
            done = info("verify", collective, "--algo", algorithm, "--file", "-", text_in=text)
            self.assertRegex(done.stdout, rf"of {ranks} ranks.* holds: \d+ steps.* proven in [\d.]+ s")

    def test_algorithms_are_proven(self):
        for algorithm in ("ring", "direct", "oneshot", "halving", "tree", "tree:shape=double", "doubling", "hierarchy:outer=halving"):
            info("verify", "all_reduce", "--algo", algorithm, "--ranks", "33", "--codec", "int4")

    def test_owners_may_keep_exact_values(self):
        exact = "int8:owner=exact"
        for collective, algorithm in (("all_gather", "bruck"), ("broadcast", "tree")):
            self.assertIn(f"with {exact} holds", info("verify", collective, "--algo", algorithm, "--ranks", "9", "--codec", exact).stdout)
            words = ["verify", collective, "--algo", algorithm, "--file", "-"]
            text = text_of(collective, algorithm, 5, exact)
            info(*words, "--codec", exact, text_in=text)
            self.assertIn("stores other bytes than rank", info(*words, text_in=text, expect=1).stderr)
            decoded = text_of(collective, algorithm, 5, "int8")
            self.assertIn("keeps its own values as encoded", info(*words, "--codec", exact, text_in=decoded, expect=1).stderr)
        refused = info("verify", "reduce", "--algo", "ring", "--ranks", "4", "--codec", exact, expect=2)
        self.assertIn("in reduce it means nothing", refused.stderr)

    def test_a_codec_is_placed_before_the_proof(self):
        text = text_of("all_reduce", "doubling", 5)
        self.assertIn("with int4 holds", info("verify", "all_reduce", "--algo", "doubling", "--file", "-", "--codec", "int4", text_in=text).stdout)
        apart = re.sub(r" #\d+ common \d+", "", text)
        self.assertNotEqual(apart, text)
        refused = info("verify", "all_reduce", "--algo", "doubling", "--file", "-", "--codec", "int4", text_in=apart, expect=1)
        self.assertIn("stores other bytes than rank", refused.stderr)

    def test_synchronous_sends(self):
        done = info("verify", "broadcast", "--algo", "ring", "--ranks", "8", "--synchronous")
        self.assertIn("sends and receives may block", done.stdout)
        done = info("verify", "all_gather", "--algo", "direct", "--ranks", "9", "--synchronous")
        self.assertIn("a rank then has up to 9 tasks in flight", done.stdout)
        relay = "".join(f"""schedule rank {own} of 2 root 0 chunks 2 outbox 1 wires 2 placed
                0: encode wire(0) <- input({own})
                1: send wire(0) -> {other} chunk {own}
                2: recv wire(1) <- {other} chunk {other}
                3: decode output({other}) <- wire(1)
                4: send wire(1) -> {other} chunk {other}
                5: recv wire(1) <- {other} chunk {own}
                6: decode output({own}) <- wire(1)
            """ for own, other in ((0, 1), (1, 0)))
        words = ["verify", "all_gather", "--algo", "direct", "--file", "-"]
        info(*words, text_in=relay)
        done = info(*words, "--synchronous", text_in=relay, expect=1)
        self.assertRegex(done.stderr, r"rank 0, step 4 .* where sends are synchronous: rank 1 comes to its step 5 .* "
                                      r"only after its step 4 .*, which waits for its receive")

    def test_hosts_are_given_larger_pieces(self):
        # As the ranks of a communicator are.
        for hosts, cut in (((), "256 segments in 4 lanes"), (("--hosts", "1,1"), "86 segments in 4 lanes")):
            self.assertIn(cut, info("explain", "all_reduce", "--algo", "ring", "--ranks", "2", *hosts, "--bytes", "64M").stdout)

    def test_many_ranks_have_the_slots_of_a_communicator(self):
        # With the 1024 slots of a few ranks, the messages of 1024 ranks would leave room for one lane.
        said = info("explain", "all_reduce", "--algo", "direct", "--ranks", "1024", "--bytes", "64M").stdout
        self.assertRegex(said, r"direct .* 32 segments in 4 lanes")

    def test_hosts_are_heard_of(self):
        for hosts in ("2,2", "2,2:round", "1,3"):
            for algorithm in ("ring", "hierarchy", "hierarchy:share=leader"):
                info("verify", "all_reduce", "--algo", algorithm, "--ranks", "4", "--hosts", hosts, "--codec", "int4")
            said = info("explain", "all_reduce", "--ranks", "4", "--hosts", hosts, "--bytes", "64M").stdout
            self.assertIn("2 hosts with", said)
            self.assertIn("rings go by 0 2 1 3\n" if hosts == "2,2:round" else "rings go by 0 1 2 3\n", said)
        inside = info("schedule", "all_reduce", "--algo", "hierarchy", "--ranks", "4", "--hosts", "2,2", "--codec", "int4").stdout
        self.assertIn(" inner", inside)
        for algorithm, hosts in itertools.product(("ring", "hierarchy", "hierarchy:outer=direct,share=leader", "hierarchy:inner=tree,outer=tree"),
                                                  ("2+1,1", "1,1/2", "1+1,2/1+2+1,2", "1+1,2/1+2+1,2:round")):
            ranks = str(sum(map(int, re.findall(r"\d+", hosts))))
            for collective in ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all"):
                if algorithm == "ring" and collective == "all_to_all":
                    continue  # there is no such schedule
                info("verify", collective, "--algo", algorithm, "--ranks", ranks, "--hosts", hosts, "--codec", "int4")
        said = info("explain", "all_reduce", "--ranks", "10", "--hosts", "1+1,2/1+2+1,2:round", "--bytes", "64M").stdout
        for line in ("4 hosts with 2, 2, 4 and 2 ranks", "7 nodes with 1, 1, 2, 1, 2, 1 and 2 ranks", "2 racks with 4 and 6 ranks",
                     "rings go by 0 1 2 7 3 4 8 5 6 9\n"):
            self.assertIn(line, said)
        # Sixteen ranks on four hosts share cores as four do on one.
        shared = [re.findall(r".* share a core", info("explain", "all_reduce", "--ranks", ranks, *hosts, "--bytes", "1K").stdout)
                  for ranks, hosts in (("4", []), ("16", ["--hosts", "4,4,4,4"]))]
        self.assertEqual(*shared)
        for wrong in ("2,x", "2,0", "", "2,2:square", "2,3", "2+,2", "/4", "2//2", f"5,{2**64 - 1}"):
            refused = info("verify", "all_reduce", "--algo", "ring", "--ranks", "4", "--hosts", wrong, expect=2)
            self.assertTrue(refused.stderr, wrong)

    def test_a_damaged_text_is_refused_with_the_step(self):
        text = text_of("all_reduce", "ring", 3, "int8")
        steps = [number for number, line in enumerate(text.splitlines()) if re.match(r"\s*\d+:", line)]
        refused = 0
        for number in steps:
            lines = text.splitlines()
            del lines[number]
            # What is left is numbered again, so that only the missing step is wrong.
            count = itertools.count()
            lines = [re.sub(r"^\s*\d+:", lambda _: f"{next(count)}:", line) if ":" in line else line for line in lines]
            fixed, count = [], None
            for line in lines:
                if line.startswith("schedule"):
                    count = itertools.count()
                elif ":" in line:
                    line = re.sub(r"^\s*\d+:", lambda _: f"{next(count)}:", line)
                fixed.append(line)
            done = info("verify", "all_reduce", "--algo", "ring", "--file", "-", text_in="\n".join(fixed) + "\n", expect=1)
            self.assertRegex(done.stderr, r"(rank \d+|line \d+)")
            refused += bool(re.search(r"rank \d+, step \d+", done.stderr))
        self.assertGreater(refused, len(steps) // 2)

    def test_other_damage_is_refused(self):
        text = text_of("all_reduce", "direct", 3)
        sections = re.split(r"(?m)^(?=schedule)", text)[1:]
        self.assertEqual(len(sections), 3)
        for damaged, because in (("".join(sections[:2]), "standard input holds no schedule of rank 2 of 3"), ("".join(sections + sections[:1]), "standard input holds several schedules of rank 0 of 3"),
                                 ("".join(sections[::2]), "no schedule of rank 1 of 3"),
                                 ("".join(sections[:1] * 3), "several schedules of rank 0 of 3"),
                                 (text_of("all_reduce", "direct", 2) + sections[2], "of several jobs"),
                                 ("", "standard input holds no schedule"), (text.replace("send", "lend", 1), "line"),
                                 ("\0\xff garbage", "line")):
            done = info("verify", "all_reduce", "--algo", "direct", "--file", "-", text_in=damaged, expect=1)
            self.assertIn(because, done.stderr)
        info("verify", "reduce_scatter", "--algo", "direct", "--file", "-", text_in=text, expect=1)
        info("verify", "all_reduce", "--algo", "direct", "--ranks", "4", "--file", "-", text_in=text, expect=1)
        # In whatever order the sections come.
        info("verify", "all_reduce", "--algo", "direct", "--file", "-", text_in="".join(reversed(sections)))

    def test_a_text_that_is_not_understood_is_named(self):
        words = ["verify", "all_reduce", "--algo", "direct", "--file"]
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(text_of("all_reduce", "direct", 2).replace("send", "sent", 1))
            file.flush()
            done = info(*words, file.name, expect=1)
            self.assertRegex(done.stderr, rf"^qccl-info: {file.name}: line \d+: expected a step")
        self.assertRegex(info(*words, "-", text_in="nonsense", expect=1).stderr, r"^qccl-info: standard input: line 1: expected")

    def test_nonsense_is_refused(self):
        for words, status, because in (
                (["verify", "all_reduce", "--algo", "star", "--ranks", "3"], 2, "ring"),
                (["verify", "all_reduce", "--algo", "ring"], 2, "--ranks is required"),
                (["verify", "all_reduce", "--ranks", "3"], 2, "--algo"),
                (["verify", "sum", "--algo", "ring", "--ranks", "3"], 2, "all_reduce"),
                (["verify", "all_reduce", "--algo", "ring", "--ranks", "3", "--codec", "int9"], 2, "int8"),
                (["schedule", "all_reduce", "--algo", "ring", "--ranks", "3", "--rank", "3"], 2, "--rank 3"),
                (["verify", "all_reduce", "--algo", "ring", "--file", "/nowhere"], 1,
                 "cannot read /nowhere: No such file or directory"),
                (["verify", "all_reduce", "--algo", "ring", "--file", "/usr"], 1, "cannot read /usr: Is a directory"),
                (["verify", "all_reduce", "--algo", "ring", "--ranks", "1000000"], 2, "65536"),
                (["verify", "all_reduce", "--algo", "ring", "--ranks", "x"], 2, "--ranks: 'x' is no number"),
                (["verify", "all_reduce", "--algoo", "ring", "--ranks", "3"], 2, "unknown option --algoo; did you mean --algo?"),
                (["schedule", "barrier", "--algo", "ring", "--ranks", "3"], 2, "ring has no barrier"),
                (["explain", "all_reduce", "--bytes", "x", "--ranks", "3"], 2, "no size"),
                (["explain", "all_reduce", "--bytes", "1K", "--ranks", "3", "--type", "x"], 2, 'type is "x"'),
                (["explain", "all_reduce", "--bytes", "1K", "--ranks", "3", "--op", "x"], 2, 'operation is "x"'),
                (["explain", "all_reduce", "--bytes", "1K", "--ranks", "3", "--op", "max", "--codec", "int4"], 2, "int4"),
                (["verify", "--algo", "ring", "--ranks", "3"], 2, "COLLECTIVE is required"),
                (["attach"], 2, "PID|FOLDER is required"),
                (["dance"], 2, "dance")):
            said = info(*words, expect=status).stderr
            self.assertIn(because, said)
            self.assertTrue(said.startswith("qccl-info: "))
            self.assertEqual(said.count("\n"), 1)


if __name__ == "__main__":
    unittest.main()
