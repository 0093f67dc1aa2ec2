// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	kmstypes "github.com/aws/aws-sdk-go-v2/service/kms/types"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

type keyAPI interface {
	keyReadAPI
	keyChangeAPI
	keyPolicyAPI
	aliasAPI
}

type keyReadAPI interface {
	kms.ListKeysAPIClient
	DescribeKey(context.Context, *kms.DescribeKeyInput, ...func(*kms.Options)) (*kms.DescribeKeyOutput, error)
	kms.ListResourceTagsAPIClient
	GetKeyRotationStatus(
		context.Context,
		*kms.GetKeyRotationStatusInput,
		...func(*kms.Options),
	) (*kms.GetKeyRotationStatusOutput, error)
}

type keyChangeAPI interface {
	keyStateAPI
	CreateKey(context.Context, *kms.CreateKeyInput, ...func(*kms.Options)) (*kms.CreateKeyOutput, error)
	UpdateKeyDescription(
		context.Context,
		*kms.UpdateKeyDescriptionInput,
		...func(*kms.Options),
	) (*kms.UpdateKeyDescriptionOutput, error)
	ScheduleKeyDeletion(
		context.Context,
		*kms.ScheduleKeyDeletionInput,
		...func(*kms.Options),
	) (*kms.ScheduleKeyDeletionOutput, error)
	TagResource(context.Context, *kms.TagResourceInput, ...func(*kms.Options)) (*kms.TagResourceOutput, error)
	UntagResource(
		context.Context,
		*kms.UntagResourceInput,
		...func(*kms.Options),
	) (*kms.UntagResourceOutput, error)
}

type keyStateAPI interface {
	EnableKey(context.Context, *kms.EnableKeyInput, ...func(*kms.Options)) (*kms.EnableKeyOutput, error)
	DisableKey(context.Context, *kms.DisableKeyInput, ...func(*kms.Options)) (*kms.DisableKeyOutput, error)
	EnableKeyRotation(
		context.Context,
		*kms.EnableKeyRotationInput,
		...func(*kms.Options),
	) (*kms.EnableKeyRotationOutput, error)
	DisableKeyRotation(
		context.Context,
		*kms.DisableKeyRotationInput,
		...func(*kms.Options),
	) (*kms.DisableKeyRotationOutput, error)
}

type keyPolicyAPI interface {
	GetKeyPolicy(
		context.Context,
		*kms.GetKeyPolicyInput,
		...func(*kms.Options),
	) (*kms.GetKeyPolicyOutput, error)
	PutKeyPolicy(
		context.Context,
		*kms.PutKeyPolicyInput,
		...func(*kms.Options),
	) (*kms.PutKeyPolicyOutput, error)
}

const (
	// keyPolicyName is the only name that the policy of a key can have.
	keyPolicyName = "default"
	// defaultPendingDays is how many days a key lingers whose resource does not say; KMS allows no less.
	defaultPendingDays = 7
	// formerClusterTag marks a key whose cluster is gone. KMS refuses to change the tags of a key that waits for its end,
	// so the cluster's tag goes first, and this one finds the key again if we are killed in between.
	formerClusterTag = "slipway.dev/former-cluster"
)

// registerKeys drives KMS keys and, beside them, their aliases.
func registerKeys(c *Cloud, api keyAPI, scope Scope) {
	c.readers = append(
		c.readers,
		func(ctx context.Context) ([]plan.ActualResource, error) { return readKeys(ctx, api, scope) },
	)

	registerDriver(c, driver[awskind.KMSKey]{
		create: func(ctx context.Context, t task[awskind.KMSKey]) (plan.StepResult, error) {
			policy := string(t.want.Policy)
			out, err := api.CreateKey(
				ctx,
				&kms.CreateKeyInput{
					Description: &t.want.Description,
					Policy:      stringOrNil(policy),
					Tags:        toKMSTags(t.want.Tags),
				},
			)
			if err != nil {
				return plan.StepResult{}, transport.Wrap(err, "create key")
			}

			t.id = aws.ToString(out.KeyMetadata.KeyId)
			t.have = awskind.KMSKey{
				Description: t.want.Description,
				Policy:      t.want.Policy,
				Tags:        t.want.Tags,
				Enabled:     true,
			}

			made, err := updateKey(ctx, api, t)
			made.Attributes = map[string]string{"Arn": aws.ToString(out.KeyMetadata.Arn)}

			return made, transport.MarkNotRetryable(err, t.id)
		},
		update: func(ctx context.Context, t task[awskind.KMSKey]) (plan.StepResult, error) {
			return updateKey(ctx, api, t)
		},
		remove: func(ctx context.Context, t task[awskind.KMSKey]) error {
			return scheduleKeyDeletion(ctx, api, t, scope)
		},
	})

	registerAliases(c, api)
}

func updateKey(ctx context.Context, api keyAPI, t task[awskind.KMSKey]) (plan.StepResult, error) {
	if t.want.Enabled && !t.have.Enabled { // first: much else is refused while it is disabled
		if _, err := api.EnableKey(ctx, &kms.EnableKeyInput{KeyId: &t.id}); err != nil {
			return plan.StepResult{}, transport.Wrap(err, "enable")
		}
	}

	if t.want.Description != t.have.Description {
		if _, err := api.UpdateKeyDescription(ctx, &kms.UpdateKeyDescriptionInput{KeyId: &t.id, Description: &t.want.Description}); err != nil {
			return plan.StepResult{}, transport.Wrap(err, "describe")
		}
	}

	if t.want.Policy != t.have.Policy {
		policy := string(t.want.Policy)
		if _, err := api.PutKeyPolicy(ctx, &kms.PutKeyPolicyInput{KeyId: &t.id, Policy: &policy, PolicyName: aws.String(keyPolicyName)}); err != nil {
			return plan.StepResult{}, transport.Wrap(err, "set policy")
		}
	}

	if err := setKeyState(ctx, api, t); err != nil {
		return plan.StepResult{}, err
	}

	return keepIdentity(t), retagKey(ctx, api, t.id, t.want.Tags, t.have.Tags)
}

// setKeyState sets the rotation, and takes a key out of use that is not to be.
func setKeyState(ctx context.Context, api keyStateAPI, t task[awskind.KMSKey]) error {
	var err error
	switch {
	case t.want.Rotation && !t.have.Rotation:
		_, err = api.EnableKeyRotation(ctx, &kms.EnableKeyRotationInput{KeyId: &t.id})
	case !t.want.Rotation && t.have.Rotation:
		_, err = api.DisableKeyRotation(ctx, &kms.DisableKeyRotationInput{KeyId: &t.id})
	}

	if err == nil && !t.want.Enabled && t.have.Enabled {
		_, err = api.DisableKey(ctx, &kms.DisableKeyInput{KeyId: &t.id})
	}

	return transport.Wrap(err, "switch key")
}

func retagKey(ctx context.Context, api keyChangeAPI, id string, want, have awskind.Tags) error {
	set, remove := diffTags(want, have)
	if len(set) > 0 {
		if _, err := api.TagResource(ctx, &kms.TagResourceInput{KeyId: &id, Tags: toKMSTags(set)}); err != nil {
			return transport.Wrap(err, "tag")
		}
	}

	if len(remove) > 0 {
		if _, err := api.UntagResource(ctx, &kms.UntagResourceInput{KeyId: &id, TagKeys: remove}); err != nil {
			return transport.Wrap(err, "untag")
		}
	}

	return nil
}

// scheduleKeyDeletion takes the cluster's tags off, then schedules the end.
func scheduleKeyDeletion(ctx context.Context, api keyChangeAPI, t task[awskind.KMSKey], scope Scope) error {
	mark := toKMSTags(awskind.Tags{formerClusterTag: scope.Cluster})
	if _, err := api.TagResource(ctx, &kms.TagResourceInput{KeyId: &t.id, Tags: mark}); err != nil {
		return transport.Wrap(err, "tag")
	}

	gone := []string{awskind.TagCluster, awskind.TagClusterOwned + scope.Cluster}
	if _, err := api.UntagResource(ctx, &kms.UntagResourceInput{KeyId: &t.id, TagKeys: gone}); err != nil {
		return transport.Wrap(err, "untag")
	}

	days := defaultPendingDays
	if t.have.PendingWindow != 0 {
		days = t.have.PendingWindow
	}

	_, err := api.ScheduleKeyDeletion(
		ctx,
		&kms.ScheduleKeyDeletionInput{KeyId: &t.id, PendingWindowInDays: int32OrNil(days)},
	)

	return transport.Wrap(err, "schedule deletion")
}

// readKeys finds the key by its alias: KMS cannot list keys by tag. Only where the alias is missing are the tags of
// keys without any alias looked at, so that a run that was killed before it made the alias leaves no orphan.
func readKeys(ctx context.Context, api keyAPI, scope Scope) ([]plan.ActualResource, error) {
	meta, err := api.DescribeKey(ctx, &kms.DescribeKeyInput{KeyId: &scope.KeyAlias})
	switch class := plan.ErrorClassOf(transport.Wrap(err, "read key %s", scope.KeyAlias)); {
	case class == plan.NotFound, class == plan.AccessDenied:
		return findUnaliasedKeys(ctx, api, scope)
	case err != nil:
		return nil, transport.Wrap(err, "read key %s", scope.KeyAlias)
	}

	id := aws.ToString(meta.KeyMetadata.KeyId)
	found := []plan.ActualResource{{
		ID:       scope.KeyAlias,
		Resource: awskind.KMSAlias{Name: scope.KeyAlias, Target: graph.UnmanagedRef[awskind.KMSKey](id)},
	}}

	key, ours, err := readKey(ctx, api, meta.KeyMetadata, scope)
	if err == nil && ours {
		return append(found, key), nil
	}

	if err != nil {
		return nil, err
	}

	return findUnaliasedKeys(
		ctx,
		api,
		scope,
	) // somebody has given the alias to another key: ours is not gone for that
}

// findUnaliasedKeys finds the key where the alias does not tell it.
func findUnaliasedKeys(ctx context.Context, api keyAPI, scope Scope) ([]plan.ActualResource, error) {
	var found []plan.ActualResource
	var aliased map[string]bool
	var aliasErr error
	var wg sync.WaitGroup
	wg.Go(func() { found, aliased, aliasErr = readAliases(ctx, api, scope.KeyAlias) })
	ids, err := listKeyIDs(ctx, api)
	wg.Wait()
	if err := errors.Join(aliasErr, err); err != nil {
		return nil, err
	}

	for _, id := range ids {
		if aliased[id] {
			continue
		}

		tags, err := readKeyTags(ctx, api, id)
		if class := plan.ErrorClassOf(err); class == plan.AccessDenied ||
			err == nil && !isOwnKey(tags, scope) {
			continue // somebody else's
		}

		if err != nil {
			return nil, err
		}

		meta, err := api.DescribeKey(ctx, &kms.DescribeKeyInput{KeyId: &id})
		if err != nil {
			return nil, transport.Wrap(err, "read key %s", id)
		}

		key, ours, err := readKey(ctx, api, meta.KeyMetadata, scope)
		if err != nil {
			return nil, err
		}

		if ours {
			found = append(found, key)
		}
	}

	return found, nil
}

func isOwnKey(tags awskind.Tags, scope Scope) bool {
	return tags[awskind.TagCluster] == scope.Cluster || tags[formerClusterTag] == scope.Cluster
}

func listKeyIDs(ctx context.Context, api keyReadAPI) ([]string, error) {
	var out []string
	pages := kms.NewListKeysPaginator(api, &kms.ListKeysInput{})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, transport.Wrap(err, "list keys")
		}

		for _, k := range page.Keys {
			out = append(out, aws.ToString(k.KeyId))
		}
	}

	return out, nil
}

// readKey returns the key, and whether it is the cluster's and lives.
func readKey(
	ctx context.Context,
	api keyAPI,
	meta *kmstypes.KeyMetadata,
	scope Scope,
) (plan.ActualResource, bool, error) {
	id := aws.ToString(meta.KeyId)
	if meta.KeyState == kmstypes.KeyStatePendingDeletion {
		return plan.ActualResource{}, false, nil
	}

	var tags awskind.Tags
	var rotation *kms.GetKeyRotationStatusOutput
	var policy *kms.GetKeyPolicyOutput
	var errs [3]error
	var wg sync.WaitGroup
	wg.Go(func() { tags, errs[0] = readKeyTags(ctx, api, id) })
	wg.Go(
		func() { rotation, errs[1] = api.GetKeyRotationStatus(ctx, &kms.GetKeyRotationStatusInput{KeyId: &id}) },
	)
	wg.Go(func() {
		policy, errs[2] = api.GetKeyPolicy(
			ctx,
			&kms.GetKeyPolicyInput{KeyId: &id, PolicyName: aws.String(keyPolicyName)},
		)
	})

	wg.Wait()
	if plan.ErrorClassOf(errs[0]) == plan.AccessDenied || errs[0] == nil && !isOwnKey(tags, scope) {
		return plan.ActualResource{}, false, nil // somebody else's
	}

	if err := errors.Join(errs[0], transport.Wrap(errs[1], "read the rotation of key %s", id), transport.Wrap(errs[2], "read the policy of key %s", id)); err != nil {
		return plan.ActualResource{}, false, err
	}

	a := plan.ActualResource{
		Addr:       addressFromTags(tags),
		ID:         id,
		Attributes: map[string]string{"Arn": aws.ToString(meta.Arn)},
	}
	if tags[formerClusterTag] == scope.Cluster {
		a.Addr += graph.Addr("@" + id) // to be ended, never to be used again
	}

	a.Resource = awskind.KMSKey{
		Description: aws.ToString(meta.Description),
		Rotation:    rotation.KeyRotationEnabled,
		Enabled:     meta.Enabled,
		Policy:      graph.CanonicalJSON(aws.ToString(policy.Policy)),
		Tags:        tags,
	}

	return a, true, nil
}

func readKeyTags(ctx context.Context, api keyReadAPI, id string) (awskind.Tags, error) {
	out := awskind.Tags{}
	pages := kms.NewListResourceTagsPaginator(api, &kms.ListResourceTagsInput{KeyId: &id})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, transport.Wrap(err, "list the tags of key %s", id)
		}

		for _, t := range page.Tags {
			out[aws.ToString(t.TagKey)] = aws.ToString(t.TagValue)
		}
	}

	return out, nil
}

func toKMSTags(tags awskind.Tags) []kmstypes.Tag {
	var out []kmstypes.Tag
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		out = append(out, kmstypes.Tag{TagKey: aws.String(k), TagValue: aws.String(tags[k])})
	}

	return out
}
