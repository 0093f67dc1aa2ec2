// SPDX-License-Identifier: Apache-2.0

package history

import (
	"math"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// TestHistories: the check accepts what may happen, and rejects lost writes and stale reads.
func TestHistories(t *testing.T) {
	write := func(value string, call, end int64) porcupine.Operation {
		return porcupine.Operation{Input: request{"k", value}, Call: call, Return: end}
	}
	read := func(value string, call, end int64) porcupine.Operation {
		return porcupine.Operation{Input: request{key: "k"}, Output: value, Call: call, Return: end}
	}
	other := porcupine.Operation{Input: request{key: "other"}, Output: "", Call: 2, Return: 3}
	for name, c := range map[string]struct {
		history []porcupine.Operation
		want    bool
	}{
		"a write is read":                     {[]porcupine.Operation{write("1", 0, 1), read("1", 2, 3)}, true},
		"a lost write":                        {[]porcupine.Operation{write("1", 0, 1), read("", 2, 3)}, false},
		"a stale read":                        {[]porcupine.Operation{write("1", 0, 1), write("2", 2, 3), read("1", 4, 5)}, false},
		"either of two writes":                {[]porcupine.Operation{write("1", 0, 9), write("2", 0, 9), read("1", 10, 11)}, true},
		"a write without an answer was late":  {[]porcupine.Operation{write("1", 0, math.MaxInt64), read("", 2, 3), read("1", 4, 5)}, true},
		"a write without an answer vanishes":  {[]porcupine.Operation{write("1", 0, math.MaxInt64), read("1", 2, 3), read("", 4, 5)}, false},
		"a write without an answer never was": {[]porcupine.Operation{write("1", 0, math.MaxInt64), read("", 2, 3)}, true},
		"another key":                         {[]porcupine.Operation{write("1", 0, 1), other}, true},
	} {
		r := NewRecorder(time.Second)
		r.operations = c.history
		if err := r.Check(time.Minute); (err == nil) != c.want {
			t.Errorf("%s: %v, want linearizable %t", name, err, c.want)
		}
	}
}
