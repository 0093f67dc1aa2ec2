// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

type keyPairAPI interface {
	ec2.DescribeKeyPairsAPIClient
	ImportKeyPair(
		context.Context,
		*ec2.ImportKeyPairInput,
		...func(*ec2.Options),
	) (*ec2.ImportKeyPairOutput, error)
	DeleteKeyPair(
		context.Context,
		*ec2.DeleteKeyPairInput,
		...func(*ec2.Options),
	) (*ec2.DeleteKeyPairOutput, error)
}

// registerKeyPairs registers the driver of EC2 key pairs, of which AWS has only the public keys.
// Instances keep the key that they were launched with.
func registerKeyPairs(c *Cloud, api keyPairAPI, scope Scope) {
	c.readersByType[ec2types.ResourceTypeKeyPair] = func(ctx context.Context) ([]plan.ActualResource, error) {
		return readKeyPairs(ctx, api, scope)
	}

	registerDriver(c, driver[awskind.KeyPair]{
		create: func(ctx context.Context, t task[awskind.KeyPair]) (plan.StepResult, error) {
			_, err := api.ImportKeyPair(ctx, &ec2.ImportKeyPairInput{
				KeyName:           &t.want.Name,
				PublicKeyMaterial: []byte(t.want.PublicKey),
				TagSpecifications: tagSpecifications(ec2types.ResourceTypeKeyPair, t.want.Tags),
			})

			return plan.StepResult{ID: t.want.Name}, transport.Wrap(err, "import key pair %s", t.want.Name)
		},
		remove: func(ctx context.Context, t task[awskind.KeyPair]) error {
			_, err := api.DeleteKeyPair(ctx, &ec2.DeleteKeyPairInput{KeyName: &t.id})
			return transport.Wrap(err, "delete")
		},
	})
}

func readKeyPairs(ctx context.Context, api keyPairAPI, scope Scope) ([]plan.ActualResource, error) {
	res, err := api.DescribeKeyPairs(
		ctx,
		&ec2.DescribeKeyPairsInput{Filters: clusterFilters(scope), IncludePublicKey: aws.Bool(true)},
	)
	if err != nil {
		return nil, transport.Wrap(err, "list key pairs")
	}

	var out []plan.ActualResource

	for _, k := range res.KeyPairs {
		// EC2 appends the name of the pair to the key.
		fields := strings.Fields(aws.ToString(k.PublicKey))
		r := awskind.KeyPair{
			Name:      aws.ToString(k.KeyName),
			PublicKey: strings.Join(fields[:min(len(fields), 2)], " "),
			Tags:      FromEC2Tags(k.Tags),
		}

		out = append(out, plan.ActualResource{Addr: addressFromTags(r.Tags), ID: r.Name, Resource: r})
	}

	return out, nil
}
