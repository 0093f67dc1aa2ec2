// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

// sized returns the members of slots, which are in one text: A is the leader, a a healthy voter, a! one that does not answer,
// and a? a learner.
func sized(text string) []etcd.MemberState {
	var out []etcd.MemberState
	for name := range strings.FieldsSeq(text) {
		slot := strings.ToLower(strings.Trim(name, "!?"))
		out = append(out, etcd.MemberState{
			Member: etcd.Member{
				ID: uint64(slot[0]), Slot: slot, Learner: strings.HasSuffix(name, "?"), Healthy: !strings.HasSuffix(name, "!"),
			},
			Leader: slot != name[:1],
		})
	}
	return out
}

func TestDecideResize(t *testing.T) {
	for name, c := range map[string]struct {
		slot, slots, members string
		serving              string
		want                 etcd.ResizeType
		removes              string
		reason               string
	}{
		"whole":                  {slot: "a", slots: "a b c", members: "A b c", want: etcd.ResizeNothing},
		"another leads":          {slot: "b", slots: "a b c", members: "A b c d e", want: etcd.ResizeNothing},
		"the last slot first":    {slot: "a", slots: "a b c", members: "A b c d e", want: etcd.ResizeRemove, removes: "e"},
		"then the other":         {slot: "a", slots: "a b c", members: "A b c d", want: etcd.ResizeRemove, removes: "d"},
		"one that is down first": {slot: "a", slots: "a b c", members: "A b c d! e", want: etcd.ResizeRemove, removes: "d"},
		"both are down":          {slot: "a", slots: "a b c", members: "A b c d! e!", want: etcd.ResizeRemove, removes: "e"},
		"one that stays is down": {slot: "a", slots: "a b c", members: "A b! c d e", want: etcd.ResizeWait, reason: "slot b does not answer"},
		"one that stays is lost": {slot: "a", slots: "a b c", members: "A c d e", want: etcd.ResizeWait, reason: "no member of slot b"},
		"one that stays joins":   {slot: "a", slots: "a b c", members: "A b? c d e", want: etcd.ResizeWait, reason: "slot b has not caught up"},
		"a learner leaves":       {slot: "a", slots: "a b c", members: "A b! c d?", want: etcd.ResizeRemove, removes: "d"},
		"still serves":           {slot: "a", slots: "a b c", members: "A b c d e", serving: "d e", want: etcd.ResizeWait, reason: "slot e still serves"},
		"three to one":           {slot: "a", slots: "a", members: "A b c", want: etcd.ResizeRemove, removes: "c"},
		"two to one":             {slot: "a", slots: "a", members: "A b", want: etcd.ResizeRemove, removes: "b"},
		"the leader leaves":      {slot: "d", slots: "a b c", members: "a b c D e", want: etcd.ResizeNothing},
	} {
		t.Run(name, func(t *testing.T) {
			got := etcd.DecideResize(etcd.ResizeFacts{
				Slot: c.slot, Slots: strings.Fields(c.slots), Members: sized(c.members), Serving: strings.Fields(c.serving),
			})
			id := uint64(0)
			if c.removes != "" {
				id = uint64(c.removes[0])
			}
			if got.Type != c.want || got.MemberID != id || !strings.Contains(got.Reason, c.reason) {
				t.Errorf("got %+v, want %s of %q", got, c.want, c.removes)
			}
		})
	}
	f := etcd.ResizeFacts{Slots: []string{"a"}, Members: sized("A c?")}
	if got := f.Absent([]string{"a", "b", "c", "d"}); !slices.Equal(got, []string{"b", "d"}) {
		t.Errorf("absent %v", got)
	}
}

// TestDecideNewSlot: the member of a slot that was added later joins as a learner, and one whose slot was removed does not found
// a cluster when the slot returns.
func TestDecideNewSlot(t *testing.T) {
	marker := &etcd.BootstrapMarker{Token: "t", Volumes: initialVolumes()}
	five := []string{"a", "b", "c", "d", "e"}
	fresh := etcd.Facts{Slot: "d", Slots: five, Volume: "vol-d0", Marker: marker, Members: voters("a", "b", "c")}
	fresh.Comparison.Equal = true
	alone := fresh
	alone.Members = nil
	busy := fresh
	busy.Members = append(voters("a", "b", "c"), etcd.Member{ID: 9, Slot: "e", Learner: true})
	founder := etcd.Facts{Slot: "c", Slots: slots(), Volume: "vol-c0", Marker: marker, Absent: true, Members: voters("a", "b")[:2]}
	founder.Comparison.Equal = true
	returned := founder
	returned.HasData = true
	for name, c := range map[string]struct {
		facts  etcd.Facts
		do     etcd.ActionType
		reason string
	}{
		"joins":                 {fresh, etcd.ActionAddLearner, "the slot is new"},
		"no quorum":             {alone, etcd.ActionWait, "slot d is new and no quorum"},
		"another joins":         {busy, etcd.ActionWait, "one at a time"},
		"founder was removed":   {founder, etcd.ActionAddLearner, "the slot is new"},
		"data was of a removed": {returned, etcd.ActionSetAsideLeft, "was removed"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := etcd.Decide(c.facts); got.Type != c.do || !strings.Contains(got.Reason, c.reason) {
				t.Errorf("got %s (%s), want %s (%s)", got.Type, got.Reason, c.do, c.reason)
			}
		})
	}
}
