// SPDX-License-Identifier: Apache-2.0

package applier

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// Revision is a version of an add-on that was applied and became healthy.
type Revision struct {
	// Number counts the versions of an add-on from 1.
	Number int `json:"revision"`
	// Version of the add-on, and the channel that it was applied from.
	Version string `json:"version"`
	Channel string `json:"channel"`
	// AppliedAt is when it had become healthy.
	AppliedAt time.Time `json:"appliedAt"`
	// RollbackTo is the revision that it was made from by a rollback; 0: it was not.
	RollbackTo int `json:"rollbackTo,omitempty"`
	// Size is the number of its objects.
	Size int `json:"objects"`
	// Current is set for the version that the cluster has.
	Current bool `json:"current,omitempty"`
	// TooLarge is set if its objects did not fit into a Secret. It cannot be rolled back to.
	TooLarge bool `json:"tooLarge,omitempty"`

	content revisionContent
}

// revisionContent is what a rollback applies.
type revisionContent struct {
	Addon   v1alpha1.Addon               `json:"addon"`
	Objects []*unstructured.Unstructured `json:"objects"`
}

// storedRevision is a revision as a Secret has it.
type storedRevision struct {
	Revision

	Content *revisionContent `json:"content,omitempty"`
}

const (
	// keptRevisions is how many versions can be returned to. Helm keeps 10, too.
	keptRevisions  = 10
	revisionLabel  = "slipway.dev/addon-revision"
	revisionType   = "slipway.dev/addon-revision"
	revisionPrefix = "slipway-addonrevision-"
	revisionKey    = "revision.json.gz"

	// maxRevisionBytes is the limit of the API server for the data of a Secret.
	maxRevisionBytes = 1 << 20
	// maxRevisionText limits what is unpacked. The objects of an add-on have 16 MiB at most.
	maxRevisionText = 64 << 20
)

// revisionName returns the name of the Secret of a revision. No inventory has such a name.
func revisionName(addon string, number int) string {
	return revisionPrefix + addon + "." + strconv.Itoa(number)
}

// Revisions returns the versions of an add-on that can be returned to, the oldest one first. A version whose apply did
// not end is not among them.
func (a *Applier) Revisions(ctx context.Context, i Inventory) ([]Revision, error) {
	list, err := a.inventories().List(ctx, metav1.ListOptions{LabelSelector: revisionLabel + "=" + i.Name})
	if err != nil {
		return nil, fmt.Errorf("read the revisions of add-on %s: %w", i.Name, err)
	}

	var out []Revision

	for _, secret := range list.Items {
		r, err := decodeRevision(secret)
		if err != nil {
			return nil, diag.WithHint(
				fmt.Errorf("read Secret %s/%s: %w", secret.GetNamespace(), secret.GetName(), err),
				"restore the Secret from a backup, or delete it: it is needed only to return to this revision",
			)
		}

		r.Current = r.Number == i.Revision && i.State == Ready
		if r.Number <= i.Revision {
			out = append(out, r)
		}
	}

	slices.SortFunc(out, func(a, b Revision) int { return a.Number - b.Number })

	return out, nil
}

// History returns the versions of an add-on that can be returned to, the oldest one first.
func (a *Applier) History(ctx context.Context, name string) ([]Revision, error) {
	inventories, err := a.Inventories(ctx)
	if err != nil {
		return nil, err
	}

	inventory, err := findInventory(inventories, name)
	if err != nil {
		return nil, err
	}

	return a.Revisions(ctx, inventory)
}

// decodeRevision reads the revision in a Secret.
func decodeRevision(secret unstructured.Unstructured) (Revision, error) {
	encoded, _, err := unstructured.NestedString(secret.Object, "data", revisionKey)
	if err != nil {
		return Revision{}, err
	}

	packed, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return Revision{}, err
	}

	unpacked, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return Revision{}, err
	}

	text, err := io.ReadAll(io.LimitReader(unpacked, maxRevisionText+1))
	if err != nil {
		return Revision{}, err
	}

	if len(text) > maxRevisionText {
		return Revision{}, fmt.Errorf("it has more than the limit of %d bytes", maxRevisionText)
	}

	var stored storedRevision
	if err := json.Unmarshal(text, &stored); err != nil {
		return Revision{}, err
	}

	if name := revisionName(secret.GetLabels()[revisionLabel], stored.Number); name != secret.GetName() {
		return Revision{}, fmt.Errorf("it has revision %d of another add-on", stored.Number)
	}

	if stored.Content != nil {
		stored.content = *stored.Content
	}

	return stored.Revision, nil
}

// encode returns the data of the Secret of a revision.
func (s storedRevision) encode() ([]byte, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}

	var out bytes.Buffer

	packed := gzip.NewWriter(&out)
	if _, err := packed.Write(text); err != nil {
		return nil, err
	}

	if err := packed.Close(); err != nil {
		return nil, err
	}

	return out.Bytes(), nil
}

// recordRevision stores the version that was applied, unless it is the same as the last one. A Secret of this number
// is from an apply that was killed before it wrote the inventory, and is replaced.
func (r *addonRun) recordRevision(ctx context.Context) error {
	content := revisionContent{Addon: r.plan.release.Addon, Objects: r.plan.release.Objects}
	content.Addon.Source = v1alpha1.AddonSource{} // the objects are recorded
	content.Addon.Parameters = nil

	text, err := json.Marshal(content)
	if err != nil {
		return fmt.Errorf("encode the revision of add-on %s: %w", r.plan.Name, err)
	}

	sum := sha256.Sum256(text)
	hash := hex.EncodeToString(sum[:])
	if hash == r.inventory.RevisionHash {
		return nil
	}

	number := r.inventory.Revision + 1
	stored := storedRevision{Content: &content}
	stored.Number = number
	stored.Version = r.plan.Update
	stored.Channel = r.plan.release.Channel
	stored.AppliedAt = r.applier.Now().UTC().Truncate(time.Second)
	stored.RollbackTo = r.plan.rollbackTo
	stored.Size = len(content.Objects)

	packed, err := stored.encode()
	if err == nil && len(packed) > maxRevisionBytes {
		stored.TooLarge = true
		stored.Content = nil
		packed, err = stored.encode()
	}

	if err == nil {
		err = r.applier.writeRevision(ctx, r.plan.Name, number, packed)
	}

	if err != nil {
		return fmt.Errorf("write revision %d of add-on %s: %w", number, r.plan.Name, err)
	}

	r.inventory.Revision = number
	r.inventory.RevisionHash = hash

	return nil
}

// writeRevision writes the Secret of a revision.
func (a *Applier) writeRevision(ctx context.Context, addon string, number int, packed []byte) error {
	secret := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1",
		"kind":       "Secret",
		"type":       revisionType,
		"data":       map[string]any{revisionKey: base64.StdEncoding.EncodeToString(packed)},
	}}

	secret.SetName(revisionName(addon, number))
	secret.SetNamespace(inventoryNamespace)
	secret.SetLabels(map[string]string{revisionLabel: addon})

	_, err := a.inventories().Create(ctx, secret, metav1.CreateOptions{FieldManager: a.fieldManager()})
	if apierrors.IsAlreadyExists(err) {
		_, err = a.inventories().Update(ctx, secret, metav1.UpdateOptions{FieldManager: a.fieldManager()})
	}

	return err
}

// dropRevisions deletes the revisions that are no longer kept. It is done at the beginning of an apply, never of those
// that a rollback can be returning to, and the inventory knows the oldest one, so that a kill leaves none behind.
func (r *addonRun) dropRevisions(ctx context.Context) error {
	oldest := max(r.inventory.OldestRevision, 1)
	for ; oldest <= r.inventory.Revision-keptRevisions; oldest++ {
		err := r.applier.inventories().Delete(ctx, revisionName(r.plan.Name, oldest), metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete revision %d of add-on %s: %w", oldest, r.plan.Name, err)
		}
	}

	r.inventory.OldestRevision = oldest

	return nil
}

// removeRevisions deletes all revisions of an add-on.
func (a *Applier) removeRevisions(ctx context.Context, i Inventory) error {
	for number := max(i.OldestRevision, 1); number <= i.Revision+1; number++ { // one more of an apply that was killed
		err := a.inventories().Delete(ctx, revisionName(i.Name, number), metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete revision %d of add-on %s: %w", number, i.Name, err)
		}
	}

	return nil
}

// PlanRollback returns what a return to a revision of an add-on would do. Revision 0 is the last healthy one before the
// current one; after an apply that failed, the last healthy one; after a rollback that was interrupted, the one that it
// returned to.
func (a *Applier) PlanRollback(ctx context.Context, name string, number int) (Plan, Revision, error) {
	inventories, err := a.Inventories(ctx)
	if err != nil {
		return Plan{}, Revision{}, err
	}

	inventory, err := findInventory(inventories, name)
	if err == nil {
		err = a.checkChangeable(inventory)
	}

	if err != nil {
		return Plan{}, Revision{}, err
	}

	revisions, err := a.Revisions(ctx, inventory)
	if err != nil {
		return Plan{}, Revision{}, err
	}

	target, err := chooseRevision(inventory, revisions, number)
	if err != nil {
		return Plan{}, Revision{}, err
	}

	if err := checkDependencies(target, inventories); err != nil {
		return Plan{}, target, err
	}

	release := Release{
		Addon:   target.content.Addon,
		Channel: inventory.Channel,
		Wave:    1,
		Objects: target.content.Objects,
	}

	p := newPlanner(a, release.Channel, []Release{release}, inventories)
	p.partial = true
	if err := p.locateObjects(); err != nil {
		return Plan{}, target, err
	}

	planned, err := p.planRelease(ctx, 0)
	planned.rollbackTo = target.Number

	return Plan{Addons: []AddonPlan{planned}}, target, err
}

// findInventory returns the inventory of an add-on. It is an error if the cluster does not have the add-on.
func findInventory(all []Inventory, name string) (Inventory, error) {
	for _, i := range all {
		if i.Name == name {
			return i, nil
		}
	}

	return Inventory{}, diag.WithHint(fmt.Errorf("the cluster has no add-on %s", name), "list them with: slipway addons get")
}

// chooseRevision returns the revision to return to.
func chooseRevision(i Inventory, revisions []Revision, number int) (Revision, error) {
	hint := "list the revisions with: slipway addons history " + i.Name

	switch {
	case number > 0:
		// the operator has chosen it
	case i.RollbackTo > 0:
		number = i.RollbackTo
	case i.State != Ready:
		number = i.Revision
	default:
		before := func(r Revision) bool { return r.Number < i.Revision && !r.TooLarge }
		for _, r := range slices.Backward(revisions) {
			if before(r) {
				return r, nil
			}
		}

		err := fmt.Errorf("add-on %s has no revision before the current one", i.Name)

		return Revision{}, diag.WithHint(err, hint)
	}

	at := slices.IndexFunc(revisions, func(r Revision) bool { return r.Number == number })

	switch {
	case at < 0 && number == 0:
		return Revision{}, diag.WithHint(fmt.Errorf("no version of add-on %s has been healthy", i.Name), hint)
	case at < 0:
		return Revision{}, diag.WithHint(fmt.Errorf("add-on %s has no revision %d", i.Name, number), hint)
	case revisions[at].TooLarge:
		return Revision{}, diag.WithHint(
			fmt.Errorf("the objects of revision %d of add-on %s were too large to be kept", number, i.Name),
			"apply the channel of version "+revisions[at].Version,
		)
	}

	return revisions[at], nil
}

// checkDependencies returns an error if an add-on that a revision depends on is not healthy.
func checkDependencies(r Revision, inventories []Inventory) error {
	var errs []error

	for _, name := range r.content.Addon.DependsOn {
		healthy := func(i Inventory) bool { return i.Name == name && i.State == Ready }
		if !slices.ContainsFunc(inventories, healthy) {
			err := fmt.Errorf("revision %d of add-on %s depends on add-on %s, which is not healthy", r.Number, r.content.Addon.Name, name)
			errs = append(errs, diag.WithHint(err, "apply "+name+" first"))
		}
	}

	return errors.Join(errs...)
}
