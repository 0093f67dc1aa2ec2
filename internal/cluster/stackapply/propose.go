// SPDX-License-Identifier: Apache-2.0

package stackapply

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/render/cloudformation"
	"github.com/slipway-k8s/slipway/internal/infra/stack"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/partition"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// proposal is what CloudFormation would do, and what must be done first.
type proposal struct {
	stack.ChangeSet
	// info is the stack as it was found, after a running operation of it had ended.
	info stack.Info
	// recreate is set if the stack must be deleted and created again: there is no change set yet.
	recreate bool
	template stack.Template
}

// learnFormerNames adds the logical ids in the deployed template, so that deleted resources are shown with
// their address.
func (c *Applier) learnFormerNames(ctx context.Context, info stack.Info) (cfnTemplate, error) {
	if stack.PhaseOf(info.Status) != stack.PhaseUpdatable {
		return cfnTemplate{}, nil
	}

	return addTemplateNames(ctx, c.client)
}

// learnFormerTemplate is learnFormerNames, and an error if a volume of the deployed template is lost.
func (c *Applier) learnFormerTemplate(ctx context.Context, info stack.Info) (cfnTemplate, error) {
	old, err := c.learnFormerNames(ctx, info)
	if err != nil {
		return old, err
	}

	return old, c.checkLostVolumes(old)
}

// proposeChange has CloudFormation compute a change set. It waits for a running operation of the stack first.
func (c *Applier) proposeChange(ctx context.Context) (proposal, error) {
	info, err := c.client.WaitForOperation(ctx)
	c.progress.End()
	if err != nil {
		return proposal{}, err
	}

	if err := c.session.CheckStack(ctx, c.desired.View, info); err != nil {
		return proposal{}, err
	}

	p := proposal{info: info}

	switch stack.PhaseOf(info.Status) {
	case stack.PhaseRollbackFailed:
		return p, nil
	case stack.PhaseDeleteOnly:
		p.recreate, p.Steps = true, createSteps(c.desired.Graph)
	case stack.PhaseAbsent:
		if err := c.refuseDirectResources(ctx); err != nil {
			return p, err
		}

	default: // it can be updated
	}

	old, err := c.learnFormerTemplate(ctx, info)
	if err != nil {
		return p, err
	}

	c.templateBody, err = cloudformation.Render(
		c.desired.Graph,
		cloudformation.Options{Description: Description(c.session), EarlierVersions: old.Mappings.Versions},
	)
	if err != nil {
		return p, err
	}

	if p.template, err = c.buildTemplate(old, info.Parameters); err != nil || p.recreate {
		return p, err
	}

	p.ChangeSet, err = c.createChangeSet(ctx, p.template, info)

	return p, err
}

// createChangeSet creates a change set. A template that is too large for the request is passed through the
// machine store, and deleted there at once. The change set must then have the same template: others may write
// to the bucket.
func (c *Applier) createChangeSet(
	ctx context.Context,
	t stack.Template,
	info stack.Info,
) (stack.ChangeSet, error) {
	if len(t.Body) <= cloudformation.MaxBodySize {
		return c.client.CreateChangeSet(ctx, t, info)
	}

	// The name is random, since another run may propose the same template.
	key := c.session.Name + "/cloudformation/" + t.Name + "-" + rand.Text() + ".json"
	t.Body = escapeNonASCII(t.Body)
	if _, err := c.desired.MachineStore.Put(ctx, key, []byte(t.Body)); err != nil {
		return stack.ChangeSet{}, err
	}

	defer c.deleteTemplate(context.WithoutCancel(ctx), key)
	place, err := store.ParseURL(c.desired.MachineStore.URL())
	if err != nil {
		return stack.ChangeSet{}, err
	}

	t.URL = c.templateURL(place.Bucket, strings.TrimPrefix(place.Prefix+"/"+key, "/"))

	return c.client.CreateChangeSet(ctx, t, info)
}

// escapeNonASCII returns a JSON text with escapes in the place of all characters that are not ASCII: GetTemplate
// returns a question mark for each of these, so that a template could not be compared.
func escapeNonASCII(text string) string {
	var out strings.Builder
	for _, r := range text {
		switch {
		case r < utf8.RuneSelf:
			out.WriteRune(r)
		default:
			for _, unit := range utf16.AppendRune(nil, r) {
				fmt.Fprintf(&out, `\u%04x`, unit)
			}
		}
	}

	return out.String()
}

// deleteTemplate deletes a template from the machine store. It does no harm there, so a failure is only
// reported.
func (c *Applier) deleteTemplate(ctx context.Context, key string) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := c.desired.MachineStore.Delete(ctx, key); err != nil {
		c.session.Env.Notifyf("the template was not deleted from %s: %v", c.desired.MachineStore.URL(), err)
	}
}

// templateURL returns the URL of an object for CloudFormation.
func (c *Applier) templateURL(bucket, object string) string {
	if c.session.Config.BaseEndpoint != nil {
		return strings.TrimSuffix(*c.session.Config.BaseEndpoint, "/") + "/" + bucket + "/" + object
	}

	region := c.session.Config.Region

	return fmt.Sprintf("https://%s.s3.%s.%s/%s", bucket, region, partition.OfRegion(region).DNSSuffix, object)
}

// refuseDirectResources refuses a cluster that was created directly by a slipway that did not record
// provisioners.
func (c *Applier) refuseDirectResources(ctx context.Context) error {
	if have, err := clusterstate.ReadProvisioner(ctx, c.desired.View, c.session.Name); err != nil || have != "" {
		return err
	}

	found := c.existing
	if len(found) == 0 {
		return nil
	}

	return diag.WithHint(
		fmt.Errorf(
			"cluster %s has %d resources that were not created by a stack, such as %s (%s)",
			c.session.Name,
			len(found),
			found[0].Addr,
			found[0].ID,
		),
		"continue with: slipway apply "+c.session.Name+
			"; to change the provisioner, delete the cluster and create it again",
	)
}

// buildTemplate returns the template with its parameters and tags. It reports parameters that keep or lose
// a value that somebody set in CloudFormation.
func (c *Applier) buildTemplate(
	old cfnTemplate,
	current map[string]string,
) (stack.Template, error) {
	now, err := parseTemplate(string(c.templateBody))
	if err != nil {
		return stack.Template{}, err
	}

	if c.options.ResetParameters {
		current = nil
	}

	values, kept, err := now.resolveParameters(old, current, c.options.Parameters)
	if err != nil {
		return stack.Template{}, err
	}

	for _, k := range slices.Sorted(maps.Keys(current)) {
		if _, still := now.Parameters[k]; !still && current[k] != old.Parameters[k].Default {
			c.session.Env.Notifyf(
				"parameter %s was set to %s in CloudFormation; the template no longer has it: "+
					"the manifest's value is used",
				k,
				current[k],
			)
		}
	}

	c.hasOwnParameters = len(kept)+len(c.options.Parameters) > 0

	for _, k := range kept {
		c.session.Env.Notifyf(
			"parameter %s keeps %s, which was set in CloudFormation; the manifest has %s "+
				"(use it with --reset-parameters)",
			k,
			values[k],
			now.Parameters[k].Default,
		)
	}

	tags := maps.Clone(c.desired.Manifests.Cluster.Spec.Tags)
	if tags == nil {
		tags = map[string]string{}
	}

	tags[awskind.TagCluster] = c.session.Name
	tags[awskind.TagClusterID] = c.session.ClusterID()

	return stack.Template{
		Body:       string(c.templateBody),
		Name:       templateHash(c.templateBody, values),
		Parameters: values,
		Tags:       tags,
	}, nil
}

// discardChangeSet deletes the change set of a proposal.
func (c *Applier) discardChangeSet(ctx context.Context, p proposal) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	return c.client.DiscardChangeSet(ctx, p.ChangeSet)
}
