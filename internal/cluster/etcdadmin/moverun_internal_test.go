// SPDX-License-Identifier: Apache-2.0

package etcdadmin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/backup"
)

var (
	errEnded   = errors.New("killed")
	errRefused = errors.New("refused")
)

// movedWorld is a cluster whose machine moves from zone a to zone b. It counts its effects, and dies before or after one of them.
type movedWorld struct {
	tagged, newVolume, aside  bool
	oldMachine, restored      bool
	backups                   int
	works, noTests, lastFails bool
	// apiStopped is set while nobody writes, unsaved while something was written since the last backup, and lost once that has gone.
	apiStopped, unsaved, lost bool
	// earlierAgent leaves the API server.
	earlierAgent bool
	// lateStop has the API server start by itself, and clients write, before the last backup is repeated.
	lateStop bool
	// noRepeat has the last backup fail the second time.
	noRepeat bool
	time     time.Time

	effects  int
	dieAt    int // the effect before which the command is killed; 0: none
	refuseAt string
	log      []string
}

// step notes an effect. It returns an error if the command is killed before it, or if it is refused.
func (w *movedWorld) step(name string) error {
	w.effects++
	if w.dieAt > 0 && w.effects >= w.dieAt {
		return errEnded
	}

	if w.refuseAt == name {
		return errRefused
	}

	w.log = append(w.log, name)
	w.unsaved = w.unsaved || (w.oldMachine && !w.apiStopped)

	return nil
}

func (w *movedWorld) lock(ctx context.Context, do func(context.Context) error) error { return do(ctx) }

func (w *movedWorld) notify(message string) { w.log = append(w.log, message) }

func (w *movedWorld) backUp(context.Context) (backup.Backup, error) {
	if err := w.step("backup"); err != nil {
		return backup.Backup{}, err
	}

	return w.take()
}

func (w *movedWorld) take() (out backup.Backup, err error) {
	if w.noTests || (w.lastFails && w.newVolume) || !w.oldMachine {
		return out, errors.New("not tested")
	}

	w.backups++
	w.unsaved = false
	out.ID = fmt.Sprint("backup-", w.backups)

	return out, nil
}

func (w *movedWorld) backUpLast(context.Context) (backup.Backup, bool, error) {
	if w.lateStop && w.newVolume {
		w.time = w.time.Add(backup.MaxAPIStop + time.Minute)
		w.apiStopped = false
		w.unsaved = true
	}

	err := w.step("last backup")
	if err == nil && w.noRepeat && w.newVolume {
		err = errRefused
	}

	if err != nil {
		w.apiStopped = !errors.Is(err, errEnded) // the machine stops it, and nobody waits for the backup
		return backup.Backup{}, false, err
	}

	w.apiStopped = !w.earlierAgent
	out, err := w.take()
	if w.lastFails && w.newVolume {
		w.endOldMachine() // by AWS
	}

	return out, w.apiStopped, err
}

func (w *movedWorld) endOldMachine() {
	w.oldMachine = false
	w.lost = w.lost || w.unsaved
}

func (w *movedWorld) hasMachine(context.Context, MovePlan) (bool, error) { return w.oldMachine, nil }

func (w *movedWorld) now() time.Time { return w.time }

func (w *movedWorld) startAPI(context.Context) error {
	w.log = append(w.log, "start API")
	w.apiStopped = false

	return nil
}

func (w *movedWorld) setAside(context.Context, MovePlan) error {
	if err := w.step("set aside"); err != nil {
		return err
	}

	w.tagged = false
	w.aside = true

	return nil
}

func (w *movedWorld) giveBack(context.Context, MovePlan) error {
	w.log = append(w.log, "give back")
	if !w.newVolume {
		w.tagged = true
		w.aside = false
	}

	return nil
}

func (w *movedWorld) check(context.Context, MovePlan) error {
	if !w.newVolume || w.tagged {
		return errors.New("the cluster has changed")
	}

	return nil
}

func (w *movedWorld) endMachines(context.Context, MovePlan) error {
	err := w.step("end machines")
	if err == nil {
		w.endOldMachine()
	}

	return err
}

func (w *movedWorld) restore(_ context.Context, id string) error {
	err := w.step("restore " + id)
	if err == nil {
		w.restored = true
	}

	return err
}

// apply behaves like apply.Run: a kill undoes nothing, and another failure does.
func (w *movedWorld) apply(ctx context.Context, within MovedApply) error {
	if w.newVolume {
		return nil // there is nothing to apply
	}

	if err := w.step("plan"); err != nil {
		return err
	}

	if err := within.Approve(ctx); err != nil {
		return err
	}

	err := within.Prepare(ctx)
	if err == nil {
		err = w.step("apply")
	}

	if err == nil {
		w.newVolume = true
		return nil
	}

	if errors.Is(err, errEnded) {
		return err
	}

	return errors.Join(err, within.Undo(ctx))
}

// plan is what PlanMove finds.
func (w *movedWorld) plan() MovePlan {
	p := MovePlan{Cluster: "demo", Slot: "a", Zone: "b", Works: w.works && w.oldMachine, Aside: w.aside}
	p.TakesBackup = p.Works
	p.Volume = "vol-old"
	if w.oldMachine {
		p.Machines = []string{"i-old"}
	}

	if w.backups > 0 {
		p.Backup = &backup.Backup{}
		p.Backup.ID = fmt.Sprint("backup-", w.backups)
	}

	return p
}

func (w *movedWorld) run(t *testing.T) error {
	t.Helper()
	_, err := w.runMove(t)

	return err
}

// runMove carries out a move, and reports whether it says that everything was moved.
func (w *movedWorld) runMove(t *testing.T) (bool, error) {
	t.Helper()
	request := MoveRequest{Apply: w.apply, Confirm: func() error { return w.step("confirm") }}
	m := move{steps: w, request: request, plan: w.plan()}
	err := m.run(t.Context())

	return !m.complete.IsZero(), err
}

func newMovedWorld() *movedWorld {
	return &movedWorld{tagged: true, oldMachine: true, works: true, time: time.Unix(1_000_000, 0)}
}

// TestMoveOrder: what is hard to undo comes last.
func TestMoveOrder(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*movedWorld)
		want   []string
	}{
		"etcd works": {
			func(*movedWorld) {},
			[]string{"plan", "confirm", "backup", "last backup", "set aside", "apply", "last backup", "end machines", "restore backup-3"},
		},
		"the machine ends during the apply": {
			func(w *movedWorld) { w.lastFails = true },
			[]string{
				"plan", "confirm", "backup", "last backup", "set aside", "apply", "last backup",
				"the machine has ended, so backup backup-2 is restored: not tested", "end machines", "restore backup-2",
			},
		},
		"the zone is down": {
			func(w *movedWorld) { w.works = false; w.backups = 7 },
			[]string{"plan", "confirm", "set aside", "apply", "end machines", "restore backup-7"},
		},
		"the manifests were applied": {
			func(w *movedWorld) { w.tagged = false; w.aside = true; w.newVolume = true },
			[]string{"confirm", "backup", "last backup", "end machines", "restore backup-2"},
		},
	} {
		w := newMovedWorld()
		c.change(w)
		everything, err := w.runMove(t)
		if err != nil || !slices.Equal(w.log, c.want) || (everything && w.lost) {
			t.Errorf("%s: %q, %v, %+v", name, w.log, err, w)
		}
	}
}

// TestRefusedMove: a move that is refused at any step leaves the volume its tags, or a rerun completes it.
func TestRefusedMove(t *testing.T) {
	for _, step := range []string{"plan", "confirm", "backup", "last backup", "set aside", "apply"} {
		w := newMovedWorld()
		w.refuseAt = step
		if err := w.run(t); !errors.Is(err, errRefused) || !w.tagged || !w.oldMachine || w.apiStopped {
			t.Errorf("%s: %+v, %v", step, w, err)
		}
	}

	w := newMovedWorld()
	w.noTests = true
	if err := w.run(t); err == nil || !w.tagged || w.apiStopped {
		t.Errorf("without a tested backup: %+v, %v", w, err)
	}

	w = newMovedWorld()
	w.refuseAt = "end machines"
	if err := w.run(t); !errors.Is(err, errRefused) || w.restored {
		t.Errorf("%+v, %v", w, err)
	}

	w.refuseAt = ""
	if err := w.run(t); err != nil || !w.restored {
		t.Errorf("rerun: %+v, %v", w, err)
	}
}

// TestKilledMove kills the command before each of its effects, and its reruns before each of theirs: the volume is set aside only
// while a backup exists, the machine ends only when the new volume exists, the last rerun completes the move, and nothing that was
// written is lost.
func TestKilledMove(t *testing.T) {
	for first := 1; first <= 10; first++ {
		for second := 0; second <= 10; second++ {
			w := newMovedWorld()
			for _, dieAt := range []int{first, second, 0} {
				w.effects = 0
				w.dieAt = dieAt
				w.apiStopped = false // it has started again until the rerun
				if w.restored {
					break
				}

				err := w.run(t)
				if err != nil && !errors.Is(err, errEnded) {
					t.Fatalf("killed at %d and %d: %v: %q", first, second, err, w.log)
				}

				if (!w.tagged && w.backups == 0) || (!w.oldMachine && !w.newVolume) {
					t.Fatalf("killed at %d and %d: %q", first, second, w.log)
				}
			}

			if !w.restored || w.lost {
				t.Errorf("killed at %d and %d: %q", first, second, w.log)
			}
		}
	}
}

// TestMoveWithAnEarlierAgent: the operator learns that writes are lost.
func TestMoveWithAnEarlierAgent(t *testing.T) {
	w := newMovedWorld()
	w.earlierAgent = true
	everything, err := w.runMove(t)
	if err != nil || everything || !w.lost || !strings.Contains(strings.Join(w.log, "\n"), "is lost") {
		t.Errorf("%+v, %v: %q", w, err, w.log)
	}
}

// TestLateMove: the API server has started by itself. If the last backup is not repeated then, the machine does not end, and the API
// server runs; if AWS has ended it, the operator learns that writes are lost.
func TestLateMove(t *testing.T) {
	w := newMovedWorld()
	w.lateStop = true
	if everything, err := w.runMove(t); err != nil || !everything || w.lost {
		t.Errorf("repeated: %+v, %v: %q", w, err, w.log)
	}

	w = newMovedWorld()
	w.lateStop = true
	w.noRepeat = true
	if err := w.run(t); !errors.Is(err, errRefused) || !w.oldMachine || w.apiStopped || w.restored {
		t.Errorf("not repeated: %+v, %v: %q", w, err, w.log)
	}

	w = newMovedWorld()
	w.lateStop = true
	w.lastFails = true
	if everything, err := w.runMove(t); err != nil || everything {
		t.Errorf("ended: %+v, %v: %q", w, err, w.log)
	}
}
