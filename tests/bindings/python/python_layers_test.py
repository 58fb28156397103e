"""What the Python package makes of layers and of their codecs. That the library's choice is right is tested in C."""
import unittest

import numpy as np
import qccl

COUNTS = (4096, 30000, 0, 777)


def values(layer, dtype=np.float32):
    generator = np.random.default_rng(layer)
    return (generator.standard_normal(COUNTS[layer]) * 10.0 ** layer).astype(dtype)


def noted(**options):
    layers = qccl.LayerCodecs(COUNTS, **options)
    for layer in range(len(layers)):
        layers.note(layer, values(layer, layers._dtype))
    return layers


class Layers(unittest.TestCase):
    def test_layers_have_the_uniform_codec_before_a_decision(self):
        for uniform in ("int4", "minmax:bits=4,bucket=128", "none"):
            with noted(uniform=uniform) as layers:
                self.assertEqual([codec.spec for codec in layers], [uniform] * 4)
                self.assertIs(layers[0], layers[1])

    def test_a_decision_spends_fewer_bytes(self):
        layers = noted()
        layers.decide()
        chosen = sum(layers[i].encode(values(i)).size for i in range(4))
        uniform = sum(qccl.Codec("int4").encode(values(i)).size for i in range(4))
        self.assertLess(chosen, uniform)
        self.assertIn("layer 3: count 777, codec " + layers[3].spec + ",", str(layers))
        kept = layers[3]
        layers.close()
        self.assertEqual(kept.encode(values(3)).dtype, np.uint8)  # it is no codec of the closed object
        with self.assertRaisesRegex(qccl.InvalidUsage, "the choice of codecs has been closed"):
            layers[3]

    def test_packed_candidates_count_with_what_they_take(self):
        packed = qccl.Codec("minmax:bucket=all,entropy=1")
        header = 64
        with noted(uniform="minmax:bits=7,bucket=64", candidates=[packed.spec]) as layers:
            layers.decide()
            self.assertEqual([layers[i].spec for i in range(2)], [packed.spec] * 2)
            for i, line in enumerate(str(layers).splitlines()[:2]):
                bits = 8 * (packed.encode(values(i)).size - header) / COUNTS[i]
                self.assertIn(f"{bits:.3f} bits a value", line)
                self.assertLess(bits, 8)

    def test_candidates_are_the_only_choice(self):
        layers = noted(uniform="int6", candidates=["int4:block=64", "minmax:bits=5,bucket=64"], dtype="float64")
        layers.decide()
        self.assertLessEqual({codec.spec for codec in layers}, {"int6", "int4:block=64", "minmax:bits=5,bucket=64"})

    def test_all_ranks_take_the_choice_of_rank_0(self):
        def body(comm):
            layers = noted() if comm.rank == 0 else qccl.LayerCodecs(COUNTS)
            layers.decide(comm)
            total = comm.all_reduce(np.ones(COUNTS[0], np.float32), codec=layers[0])
            return [codec.spec for codec in layers], float(total[0])

        alone = noted()
        alone.decide()
        self.assertEqual(qccl.run_threads(3, body), [([codec.spec for codec in alone], 3.0)] * 3)

    def test_wrong_arguments_are_named(self):
        def refused(sentence, call, *arguments, **options):
            with self.assertRaises(qccl.InvalidArgument) as caught:
                call(*arguments, **options)
            self.assertIn(sentence, str(caught.exception))

        refused("counts[1]: 'a' is no number of values", qccl.LayerCodecs, [1, "a"])
        refused("counts[0]: -1 is no number of values", qccl.LayerCodecs, [-1])
        refused("uniform: 4 is no codec", qccl.LayerCodecs, [1], uniform=4)
        refused("candidates: None is no codec", qccl.LayerCodecs, [1], candidates=["int4", None])
        refused("candidates: there are none", qccl.LayerCodecs, [1], candidates=[])
        refused("shared:bits=5 is no codec of layers: what it loses", qccl.LayerCodecs, [1], uniform="shared:bits=5")
        refused("shared is no codec of layers: what it loses", qccl.LayerCodecs, [1], candidates=["int4", "shared"])
        refused("nlayers is 0", qccl.LayerCodecs, [])
        refused("int64", qccl.LayerCodecs, [1], np.int64)
        layers = qccl.LayerCodecs(COUNTS)
        refused("layer: 4 is no layer; pass an int from 0 to 3", layers.note, 4, values(0))
        refused("values: layer 0 has 4096 values of float32, the array has 30000 of float32", layers.note, 0, values(1))
        refused("the array has 4096 of float64", layers.note, 0, values(0).astype(float))
        refused("a list has no memory", layers.note, 0, [1.0])


class LayersOfACall(unittest.TestCase):
    SHAPES = ((64, 40), (40,), 3000, (), (5, 0))

    @staticmethod
    def gradient(comm, count):
        return np.random.default_rng(comm.rank).standard_normal(count).astype("float32")

    def test_each_has_the_bits_of_its_own_call(self):
        def body(comm):
            count = 64 * 40 + 40 + 3000 + 1
            codecs = ("int4", "int8", qccl.Codec("minmax:bits=3"), "int8", None)
            states = [qccl.State(comm, np.empty(2560, "float32")), None, None, None, None]
            layers = [qccl.Layer(shape, codec, state) for shape, codec, state in zip(self.SHAPES, codecs, states)]
            together, alone = self.gradient(comm, count), self.gradient(comm, count)
            comm.all_reduce(together, "avg", layers=layers)
            own = qccl.State(comm, alone[:2560])
            comm.all_reduce(alone[:2560], "avg", codec="int4", state=own)
            comm.all_reduce(alone[2560:2600], "avg")
            comm.all_reduce(alone[2600:5600], "avg", codec="minmax:bits=3")
            comm.all_reduce(alone[5600:], "avg")
            np.testing.assert_array_equal(together, alone)
            np.testing.assert_array_equal(states[0].save(), own.save())
            prepared = comm.prepare("all_reduce", together, layers=[2600, (3001,)], layer_min_size=1, codec="int8")
            prepared.start()
            comm.all_reduce(alone[:2600], codec="int8")
            comm.all_reduce(alone[2600:])
            np.testing.assert_array_equal(together, alone)
            return True

        self.assertEqual(qccl.run_threads(3, body), [True] * 3)

    def test_wrong_lists_are_named(self):
        def body(comm):
            x = np.zeros(4, np.float32)
            for sentence, options in (("layers[1]: count is 2, but 1 of", {"layers": [3, 2]}),
                                      ("nlayers is 0", {"layers": []}),
                                      ("layers[0]: 'a' is no number of values", {"layers": ["a"]}),
                                      ("layers[1]: -1 is no length of a shape", {"layers": [3, (1, -1)]}),
                                      ("layers[0]: a int is no state", {"layers": [qccl.Layer(4, state=3)]}),
                                      ("layer_min_size: 0 is no number of values", {"layers": [4], "layer_min_size": 0}),
                                      ("layers is NULL", {"layer_min_size": 3})):
                with self.assertRaises(qccl.InvalidArgument) as caught:
                    comm.all_reduce(x, **options)
                self.assertIn(sentence, str(caught.exception))

        qccl.run_threads(2, body)


if __name__ == "__main__":
    unittest.main()
