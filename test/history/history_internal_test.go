// SPDX-License-Identifier: Apache-2.0

package history

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"pgregory.net/rapid"
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

// TestUnansweredWritesAreBounded: the history with bounded writes is linearizable if and only if the recorded one is.
func TestUnansweredWritesAreBounded(t *testing.T) {
	verdicts := map[porcupine.CheckResult]int{}
	rapid.Check(t, func(t *rapid.T) {
		var history []porcupine.Operation
		writes := 0
		for range rapid.IntRange(1, 9).Draw(t, "operations") {
			o := porcupine.Operation{Input: request{key: "k"}, Call: rapid.Int64Range(0, 20).Draw(t, "call")}
			o.Return = o.Call + rapid.Int64Range(1, 8).Draw(t, "duration")
			if rapid.Bool().Draw(t, "write") {
				writes++
				o.Input = request{"k", strconv.Itoa(writes)}
				if rapid.Bool().Draw(t, "unanswered") {
					o.Return = math.MaxInt64
				}
			}
			history = append(history, o)
		}
		for i, o := range history {
			if o.Input == (request{key: "k"}) {
				history[i].Output = ""
				if n := rapid.IntRange(0, writes).Draw(t, "value"); n > 0 {
					history[i].Output = strconv.Itoa(n)
				}
			}
		}
		want := porcupine.CheckOperationsTimeout(newModel(), history, 0)
		if have := porcupine.CheckOperationsTimeout(newModel(), boundUnanswered(history), 0); have != want {
			t.Fatalf("%s, want %s: %+v", have, want, history)
		}
		verdicts[want]++
	})
	if verdicts[porcupine.Ok] == 0 || verdicts[porcupine.Illegal] == 0 {
		t.Errorf("the histories had the verdicts %v only", verdicts)
	}
}

// TestLostWriteAfterManyUnanswered: a lost write is found in time among the unanswered ones of seconds without a quorum.
func TestLostWriteAfterManyUnanswered(t *testing.T) {
	r := NewRecorder(time.Second)
	add := func(value, output string, call, end int64) {
		r.operations = append(r.operations, porcupine.Operation{Input: request{"k", value}, Output: output, Call: call, Return: end})
	}
	for i := range int64(30) {
		value := strconv.FormatInt(i, 10)
		add("unanswered"+value, "", 10*i, math.MaxInt64)
		add(value, "", 10*i+1, 10*i+3)
	}
	add("", "29", 400, 401)
	add("acknowledged", "", 402, 403)
	add("", "29", 404, 405)
	err := r.Check(20 * time.Second)
	if err == nil || !strings.Contains(err.Error(), "linearizable is Illegal") || !strings.Contains(err.Error(), "404ns to 405ns: client 0 reads \"29\" of k") {
		t.Errorf("%v, want that the history is illegal, and the last read", err)
	}
}
