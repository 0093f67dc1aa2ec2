// SPDX-License-Identifier: Apache-2.0

package services

import (
	"net/http"

	"github.com/slipway-k8s/slipway/internal/region/ecr"
	"github.com/slipway-k8s/slipway/internal/region/s3"
	"github.com/slipway-k8s/slipway/internal/region/ssm"
)

// buildStorage builds S3 and SSM.
func (s *Services) buildStorage() (err error) {
	s.S3, err = s3.New(s3.Config{
		Dir:        s.cfg.S3Dir,
		Region:     s.cfg.Region,
		Account:    s.cfg.Account,
		Now:        s.cfg.Now,
		Identities: s.IAM,
		KMS:        s.KMS,

		MissingPrincipal: s.missingPrincipal,
	})
	if err != nil {
		return err
	}

	s.SSM, err = ssm.New(ssm.Config{
		Region:           s.cfg.Region,
		Account:          s.cfg.Account,
		State:            s.cfg.State,
		Now:              s.cfg.Now,
		PublicParameters: s.cfg.PublicParameters,
	})

	return err
}

// buildRegistry builds Amazon ECR. What the owner of a token may do is decided by IAM.
func (s *Services) buildRegistry() (err error) {
	s.ECR, err = ecr.New(ecr.Config{
		Region:     s.cfg.Region,
		Account:    s.cfg.Account,
		Dir:        s.cfg.RegistryDir,
		State:      s.cfg.State,
		Now:        s.cfg.Now,
		Authorizer: s.IAM,
	})

	return err
}

// EndpointService returns the service whose VPC endpoint a request needs, such as ec2, or ecr.api
// for the API of Amazon ECR.
func (s *Services) EndpointService(r *http.Request) string {
	if service := s.ECR.EndpointOf(r); service != "" {
		return service
	}

	service := s.Server.ServiceOf(r)
	if service == "ecr" {
		return "ecr.api"
	}

	return service
}
