// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

type aliasAPI interface {
	kms.ListAliasesAPIClient
	CreateAlias(context.Context, *kms.CreateAliasInput, ...func(*kms.Options)) (*kms.CreateAliasOutput, error)
	UpdateAlias(context.Context, *kms.UpdateAliasInput, ...func(*kms.Options)) (*kms.UpdateAliasOutput, error)
	DeleteAlias(context.Context, *kms.DeleteAliasInput, ...func(*kms.Options)) (*kms.DeleteAliasOutput, error)
}

// registerAliases registers the driver of the aliases of KMS keys.
func registerAliases(c *Cloud, api aliasAPI) {
	registerDriver(c, driver[awskind.KMSAlias]{
		create: func(ctx context.Context, t task[awskind.KMSAlias]) (plan.StepResult, error) {
			key := t.want.Target.Literal()
			_, err := api.CreateAlias(ctx, &kms.CreateAliasInput{AliasName: &t.want.Name, TargetKeyId: &key})

			return plan.StepResult{ID: t.want.Name}, transport.Wrap(err, "create alias for key %s", key)
		},
		update: func(ctx context.Context, t task[awskind.KMSAlias]) (plan.StepResult, error) {
			key := t.want.Target.Literal()
			_, err := api.UpdateAlias(ctx, &kms.UpdateAliasInput{AliasName: &t.want.Name, TargetKeyId: &key})

			return keepIdentity(t), transport.Wrap(err, "point %s to key %s", t.id, key)
		},
		remove: func(ctx context.Context, t task[awskind.KMSAlias]) error {
			_, err := api.DeleteAlias(ctx, &kms.DeleteAliasInput{AliasName: &t.id})
			return transport.Wrap(err, "delete")
		},
	})
}

// readAliases returns the alias called name, if it exists, and the ids of all keys that have an
// alias.
func readAliases(
	ctx context.Context,
	api aliasAPI,
	name string,
) (found []plan.ActualResource, aliased map[string]bool, err error) {
	aliased = map[string]bool{}
	pages := kms.NewListAliasesPaginator(api, &kms.ListAliasesInput{})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, nil, transport.Wrap(err, "list the aliases of keys")
		}

		for _, a := range page.Aliases {
			key := aws.ToString(a.TargetKeyId)
			aliased[key] = true
			if aws.ToString(a.AliasName) == name && key != "" {
				found = append(found, plan.ActualResource{
					ID:       name,
					Resource: awskind.KMSAlias{Name: name, Target: graph.UnmanagedRef[awskind.KMSKey](key)},
				})
			}
		}
	}

	return found, aliased, nil
}
