package main

import "testing"

func TestRanks(t *testing.T) {
	for _, c := range []struct {
		engine        engineFlags
		said, publish int
		want          int // -1: refused
	}{
		{engineFlags{engine: "sim"}, 0, 1, 0}, {engineFlags{engine: "sim"}, 2, 1, 2},
		{engineFlags{engine: "vllm", args: []string{"--data-parallel-size", "4"}}, 0, 1, 4},
		{engineFlags{engine: "vllm", args: []string{"--data-parallel-size", "4"}}, 1, 1, 1},
		{engineFlags{engine: "vllm"}, 0, 1, 0},
		{engineFlags{engine: "sim", attach: "http://h:1"}, 0, 3, 3}, {engineFlags{engine: "sim", attach: "http://h:1", attachKind: "vllm"}, 2, 3, 2},
		{engineFlags{engine: "sim", attach: "http://h:1", attachKind: "sglang"}, 0, 3, 0},
		{engineFlags{engine: "sim", attach: "http://h:1", attachKind: "sglang"}, 2, 3, -1}, {engineFlags{engine: "trtllm"}, 2, 1, -1},
	} {
		got, err := c.engine.ranks(c.said, c.publish)
		if (err != nil) != (c.want < 0) || err == nil && got != c.want {
			t.Errorf("%+v, said %d: %d, %v, want %d", c.engine, c.said, got, err, c.want)
		}
	}
}
