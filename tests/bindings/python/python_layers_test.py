"""What the Python package makes of the codecs of layers. That the library's choice is right is tested in C."""
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
        refused("nlayers is 0", qccl.LayerCodecs, [])
        refused("int64", qccl.LayerCodecs, [1], np.int64)
        layers = qccl.LayerCodecs(COUNTS)
        refused("layer: 4 is no layer; pass an int from 0 to 3", layers.note, 4, values(0))
        refused("values: layer 0 has 4096 values of float32, the array has 30000 of float32", layers.note, 0, values(1))
        refused("the array has 4096 of float64", layers.note, 0, values(0).astype(float))
        refused("a list has no memory", layers.note, 0, [1.0])


if __name__ == "__main__":
    unittest.main()
