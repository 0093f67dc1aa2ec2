// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

// The model's time advances in ticks, of which each agent takes one look. modelAfter is the delay of the policy.
const (
	tick       = 10 * time.Second
	modelAfter = time.Minute
)

// modelEntry is an entry of a Raft log. A write has an id, and the removal of a member that member's; a new leader's first entry has none.
type modelEntry struct {
	term    uint64
	id      int
	removes uint64
}

// modelBackup is a backup in the machine store.
type modelBackup struct {
	id       string
	request  string
	position etcd.Position
	writes   map[int]bool
	broken   bool // a test would fail
	tested   bool
}

// modelAgent is what the process of an agent remembers.
type modelAgent struct {
	report    etcd.QuorumReport
	lossSince time.Time
	seen      etcd.ReportWatch
	published string // the session of its last report
	joined    int    // how many slots have had data of the current generation
}

// lostQuorum is a model of a cluster whose machines stop, whose volumes and zones are lost, whose members are cut off from each
// other or from the store, and whose agents see EC2 late, have wrong clocks and are killed between any two effects.
type lostQuorum struct {
	*restorations
	now time.Time
	// up are the machines that run, and exists the volumes that exist, by slot.
	up, exists map[string]bool
	// volumeID names the volume of each slot, and joined the one on which the slot's member had data last.
	volumeID, joined map[string]string
	logs             map[string][]modelEntry
	isolated         map[string]bool // from all other members
	apart            map[string]bool // these members reach each other, and none of the rest
	storeCut         map[string]bool
	zoneDown         map[string]bool
	skew             map[string]time.Duration
	agents           map[string]*modelAgent
	reports          map[string]etcd.QuorumReport
	// views are the volumes by slot that EC2 had at the last ticks.
	views []map[string][]string
	// hidden are slots whose volume EC2's lists lack, for as long as a machine reports that it has mounted it.
	hidden  map[string]bool
	told    map[string]time.Time // when the machine of a slot has reported last
	backups []modelBackup
	terms   map[string]uint64 // by identity
	leaders map[string]string // by identity
	ledIn   map[string]uint64 // by slot: the term in which its member is or was the leader
	acked   map[int]bool
	ids     int
	slotChanges
	twoMachines
	// electing is for how many more ticks a cluster elects a leader, by identity.
	electing map[string]int
	// recovered counts generations, and reasons the steps that machines decided on.
	recovered int
	reasons   map[etcd.RecoveryStepType]int
}

func newLostQuorum(t *rapid.T) *lostQuorum {
	w := &lostQuorum{
		restorations: newRestorations(t),
		now:          time.Unix(1_000_000, 0),
		up:           map[string]bool{},
		exists:       map[string]bool{},
		volumeID:     map[string]string{},
		joined:       map[string]string{},
		logs:         map[string][]modelEntry{},
		isolated:     map[string]bool{},
		apart:        map[string]bool{},
		storeCut:     map[string]bool{},
		zoneDown:     map[string]bool{},
		hidden:       map[string]bool{},
		told:         map[string]time.Time{},
		skew:         map[string]time.Duration{},
		agents:       map[string]*modelAgent{},
		reports:      map[string]etcd.QuorumReport{},
		terms:        map[string]uint64{"first": 1},
		leaders:      map[string]string{},
		ledIn:        map[string]uint64{},
		acked:        map[int]bool{},
		reasons:      map[etcd.RecoveryStepType]int{},
		electing:     map[string]int{},
	}
	w.slotChanges = newSlotChanges(w.slots)
	w.twoMachines = newTwoMachines()
	w.isDetached = func(slot string) bool { return w.stale[slot] }
	w.slow = true
	w.leads = w.hasLeader
	w.documented = func(slot string) []string { return w.documents[slot] }
	w.leaves = w.hasLeft
	w.reaches = func(from, to string) bool {
		return !w.isolated[from] && !w.isolated[to] && w.apart[from] == w.apart[to]
	}
	for _, slot := range w.slots {
		w.launch(slot)
		w.create(slot)
		w.joined[slot] = w.volumeID[slot]
		w.logs[slot] = []modelEntry{{term: 1}}
		w.skew[slot] = time.Duration(rapid.IntRange(-30, 30).Draw(t, "skew")) * time.Second
		at := slices.IndexFunc(w.members["first"], func(e etcd.Member) bool { return e.Slot == slot })
		w.volumes[slot] = &modelVolume{
			name: w.volumeID[slot], identity: "first", generation: 1, member: w.members["first"][at].ID,
		}
	}
	return w
}

// create creates a volume for a slot.
func (w *lostQuorum) create(slot string) {
	w.ids++
	w.exists[slot] = true
	w.volumeID[slot] = fmt.Sprintf("vol-%s-%d", slot, w.ids)
	w.volumes[slot] = &modelVolume{name: w.volumeID[slot]}
}

// stop stops a machine, and with it its agent and its member.
func (w *lostQuorum) stop(slot string) {
	w.up[slot] = false
	w.running[slot] = false
	delete(w.agents, slot)
	delete(w.ledIn, slot)
}

// lose deletes a volume.
func (w *lostQuorum) lose(slot string) {
	w.stop(slot)
	w.exists[slot] = false
	w.volumes[slot] = &modelVolume{}
	w.logs[slot] = nil
}

// zone returns the slots of a slot's zone: five members are in three zones.
func (w *lostQuorum) zone(slot string) []string {
	for _, zone := range [][]string{{"a", "b"}, {"c", "d"}} {
		if len(w.slots) == 5 && slices.Contains(zone, slot) {
			return zone
		}
	}
	return []string{slot}
}

// number returns the number of the current generation.
func (w *lostQuorum) number() int { return len(w.generations) + 1 }

func logEnd(log []modelEntry) etcd.LogEnd {
	if len(log) == 0 {
		return etcd.LogEnd{}
	}
	return etcd.LogEnd{Term: log[len(log)-1].term, Index: uint64(len(log))}
}

func writesOf(log []modelEntry) map[int]bool {
	out := map[int]bool{}
	for _, e := range log {
		if e.id > 0 {
			out[e.id] = true
		}
	}
	return out
}

// quorums returns for each cluster that works the slots of the members that reach each other: they are a majority, and have a leader.
func (w *lostQuorum) quorums() map[string][]string {
	out := w.majorities()
	maps.DeleteFunc(out, func(identity string, side []string) bool { return !w.hasLeader(identity, side[0]) })
	return out
}

// majorities returns for each cluster that has a majority the slots of the members that reach each other.
func (w *lostQuorum) majorities() map[string][]string {
	out := map[string][]string{}
	for _, slot := range w.slots {
		identity := w.volumes[slot].identity
		if identity == "" || !w.alive(identity, slot) || len(out[identity]) > 0 || w.listQuorum(identity, slot) == nil {
			continue
		}
		for _, peer := range w.slots {
			if w.alive(identity, peer) && w.connected(slot, peer) && w.isVoter(identity, peer) {
				out[identity] = append(out[identity], peer)
			}
		}
	}
	return out
}

func (w *lostQuorum) isVoter(identity, slot string) bool {
	return slices.ContainsFunc(w.members[identity], func(e etcd.Member) bool { return e.Slot == slot && !e.Learner })
}

// lead returns the leader of members with a quorum. A new one begins a term.
func (w *lostQuorum) lead(identity string, side []string) string {
	leader := w.leaders[identity]
	if slices.Contains(side, leader) && w.ledIn[leader] == w.terms[identity] {
		return leader
	}
	leader = side[0]
	for _, slot := range side {
		if logEnd(w.logs[slot]).Compare(logEnd(w.logs[leader])) > 0 {
			leader = slot
		}
	}
	for _, slot := range side {
		delete(w.ledIn, slot) // they follow the new leader
	}
	w.terms[identity]++
	w.leaders[identity] = leader
	w.ledIn[leader] = w.terms[identity]
	w.volumes[leader].votes = true
	w.logs[leader] = append(slices.Clone(w.logs[leader]), modelEntry{term: w.terms[identity]})
	return leader
}

// replicate copies the leader's log to so many others that a majority of the voters has it.
func (w *lostQuorum) replicate(identity, leader string, side []string) {
	voters := 0
	for _, e := range w.members[identity] {
		if !e.Learner {
			voters++
		}
	}
	others := slices.DeleteFunc(slices.Clone(side), func(s string) bool { return s == leader })
	others = rapid.Permutation(others).Draw(w.T, "followers")
	for _, slot := range others[:rapid.IntRange(voters/2, len(others)).Draw(w.T, "copies")] {
		w.copyLog(slot, leader)
		delete(w.ledIn, slot)
	}
}

// copyLog copies the log of a voter to another one, which learns from it that it is one.
func (w *lostQuorum) copyLog(to, from string) {
	w.logs[to] = slices.Clone(w.logs[from])
	w.volumes[to].votes = true
}

// write lets a client write. Without an answer, the write is in the leader's log alone.
func (w *lostQuorum) write(answered bool) {
	for identity, side := range w.quorums() {
		leader := w.lead(identity, side)
		w.ids++
		w.logs[leader] = append(slices.Clone(w.logs[leader]), modelEntry{term: w.terms[identity], id: w.ids})
		if answered {
			w.replicate(identity, leader, side)
			w.acked[w.ids] = true
		}
	}
}

// stray cuts a leader off, which writes into its log what no client is told.
func (w *lostQuorum) stray() {
	for _, slot := range w.slots {
		if !w.running[slot] || w.ledIn[slot] == 0 || w.volumes[slot].identity == "" {
			continue
		}
		w.isolated[slot] = true
		for range rapid.IntRange(1, 6).Draw(w.T, "strays") {
			w.ids++
			w.logs[slot] = append(slices.Clone(w.logs[slot]), modelEntry{term: w.ledIn[slot], id: w.ids})
		}
	}
}

// takeBackup takes a scheduled backup.
func (w *lostQuorum) takeBackup() {
	for identity, side := range w.quorums() {
		leader := w.lead(identity, side)
		w.replicate(identity, leader, side)
		w.ids++
		w.backups = append(w.backups, modelBackup{
			id:       fmt.Sprintf("backup-%d", w.ids),
			position: w.position(leader, w.terms[identity]),
			writes:   writesOf(w.logs[leader]),
			broken:   rapid.IntRange(0, 5).Draw(w.T, "broken") == 0,
		})
	}
}

// position returns the place of a slot's data in the history.
func (w *lostQuorum) position(slot string, term uint64) etcd.Position {
	return etcd.Position{
		Generation: w.volumes[slot].generation,
		Term:       term,
		Revision:   int64(len(writesOf(w.logs[slot]))),
	}
}

// memberStep lets the agent of a slot decide once about its member.
func (w *lostQuorum) memberStep(slot string, effects int) {
	if !w.up[slot] || !w.exists[slot] || !w.mayStep(slot) {
		return
	}
	v := w.volumes[slot]
	before := *v
	w.step(slot, !w.storeCut[slot], effects)
	w.stopRemoved(slot)
	w.setRemovedAside(slot)
	if v.identity != before.identity {
		delete(w.ledIn, slot)
	}
	switch {
	case v.identity == before.identity:
	case v.identity == "":
		w.logs[slot] = nil
	case v.generation == w.number() && w.generations != nil && before.prepared == v.identity || len(w.members[v.identity]) == 1:
		w.logs[slot] = []modelEntry{{term: 1}}
		w.terms[v.identity] = 1
		for _, id := range slices.Sorted(maps.Keys(w.backup(w.newest().Backup).writes)) {
			w.logs[slot] = append(w.logs[slot], modelEntry{term: 1, id: id})
		}
		w.running[slot] = true
	default:
		w.joinLog(slot, v.identity)
	}
	if v.identity != "" && w.running[slot] && !w.storeCut[slot] {
		w.joined[slot] = w.volumeID[slot]
	}
}

// joinLog copies a part of the leader's log to a member that joins.
func (w *lostQuorum) joinLog(slot, identity string) {
	newest := w.newestLog(slot, identity)
	w.logs[slot] = slices.Clone(newest[:rapid.IntRange(0, len(newest)).Draw(w.T, "copied")])
}

// newestLog returns the newest log of the other voters of a cluster.
func (w *lostQuorum) newestLog(slot, identity string) []modelEntry {
	var newest []modelEntry
	for _, peer := range w.slots {
		if peer != slot && w.alive(identity, peer) && w.isVoter(identity, peer) && logEnd(w.logs[peer]).Compare(logEnd(newest)) > 0 {
			newest = w.logs[peer]
		}
	}
	return newest
}

// memberPromotion lets the agent of a slot promote its learner, which has caught up with the leader before.
func (w *lostQuorum) memberPromotion(slot string, effects int) {
	v := w.volumes[slot]
	if !v.marked || !w.running[slot] || v.identity == "" || w.list(v.identity, slot) == nil {
		return
	}
	if newest := w.newestLog(slot, v.identity); !v.votes && logEnd(newest).Compare(logEnd(w.logs[slot])) > 0 {
		w.logs[slot] = slices.Clone(newest)
	}
	w.promote(slot, effects)
}

func (w *lostQuorum) backup(id string) *modelBackup {
	at := slices.IndexFunc(w.backups, func(b modelBackup) bool { return b.id == id })
	if at < 0 {
		w.Fatalf("backup %s does not exist", id)
	}
	return &w.backups[at]
}

// advance begins the next tick.
func (w *lostQuorum) advance() {
	w.now = w.now.Add(tick)
	view := map[string][]string{}
	for _, slot := range w.slots {
		if w.exists[slot] {
			view[slot] = []string{w.volumeID[slot]}
		}
	}
	w.views = append(w.views, view)
	w.noteAttachments()
	w.elect()
	if working := w.quorums(); len(working) > 1 {
		w.Fatalf("two clusters accept writes: %v", working)
	}
}

// fault lets something happen to a slot.
func (w *lostQuorum) fault(slot string) {
	switch rapid.IntRange(0, 20).Draw(w.T, "fault") {
	case 0, 1:
		w.stop(slot)
	case 2, 3, 4:
		w.lose(slot)
	case 5:
		for _, s := range w.zone(slot) {
			w.zoneDown[s] = !w.zoneDown[s]
			w.stop(s)
			w.endSecond(s)
		}
	case 6:
		w.isolated[slot] = !w.isolated[slot]
	case 7:
		w.storeCut[slot] = !w.storeCut[slot]
	case 8:
		w.skew[slot] += time.Duration(rapid.IntRange(-20, 20).Draw(w.T, "drift")) * time.Second
	case 9:
		w.stray()
	case 10:
		delete(w.agents, slot) // the agent was killed
	case 11:
		w.hidden[slot] = !w.hidden[slot]
	case 12:
		w.apart[slot] = !w.apart[slot]
	case 13:
		w.shrink()
	case 14:
		w.endLeft(slot)
	case 15, 16, 17, 18:
		w.faultOfTwo(slot)
	default:
		if !w.exists[slot] && !w.zoneDown[slot] && !w.hasLeft(slot) {
			w.create(slot) // apply --recreate-lost-volumes
		}
	}
}

// live lets one tick pass in which clients write, machines start and agents look.
func (w *lostQuorum) live() {
	w.advance()
	switch rapid.IntRange(0, 5).Draw(w.T, "traffic") {
	case 0:
		w.write(false)
	case 1:
		w.takeBackup()
	default:
		w.write(true)
	}
	for _, slot := range rapid.Permutation(w.slots).Draw(w.T, "order") {
		if !w.up[slot] && !w.zoneDown[slot] && !w.ended[slot] && rapid.Bool().Draw(w.T, "replaced") {
			w.launch(slot)
		}
		w.memberStep(slot, rapid.IntRange(0, 4).Draw(w.T, "effects"))
		w.memberPromotion(slot, rapid.IntRange(0, 3).Draw(w.T, "promotion"))
		w.followSlots(slot, rapid.IntRange(0, 3).Draw(w.T, "resize"))
		w.look(slot, rapid.IntRange(0, 2).Draw(w.T, "late"), rapid.IntRange(0, 3).Draw(w.T, "kill"))
		w.actAsSecond(slot)
	}
}
