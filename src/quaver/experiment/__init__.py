"""A recipe carried out: data, float training, int8-aware training, artefacts, report."""
